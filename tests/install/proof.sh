#!/bin/bash
# Runs inside a bare Debian booted by a real systemd (test_clean_root.py): installs as the manual
# says, uses the service as an operator would, and leaves a line per claim in /proof/claims.
cd /wheels
exec >/proof/log 2>&1
set -x

claim() { # NAME COMMAND...
    local name=$1
    shift
    if "$@"; then echo "ok $name" >>/proof/claims; else echo "FAILED $name" >>/proof/claims; fi
}
within() { # SECONDS COMMAND...: until it is true
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 0.2
    done
}
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
ctl=/opt/peercached/bin/peercachectl

claim "the manual's commands work" bash -ex /proof/install.sh
claim "active means ready" systemctl is-active peercached
claim "the unit is clean" test -z "$(systemd-analyze verify --man=no "$(systemctl show -P FragmentPath peercached)" 2>&1)"
claim "it runs as its own user" test "$(ps -o user= -p "$(systemctl show -P MainPID peercached)")" = peercached
claim "it says in one line how it is" bash -c 'systemctl show -P StatusText peercached | grep -q "^Serving"'

useradd --create-home --groups peercached-workers engine
useradd --create-home stranger
as() { setpriv --reuid="$1" --regid="$1" --init-groups "${@:2}"; }
claim "an engine in its group sets and gets" as engine /opt/peercached/bin/python /proof/client.py
not_permitted() { as "$1" $ctl status 2>&1 | grep "you may not open the admin socket"; }
claim "a stranger is told why not" not_permitted stranger
claim "an engine is no operator" not_permitted engine
unreadable() { ! as engine cat "$1" && as peercached cat "$1" >/dev/null; }
$ctl secret new /etc/peercached/cluster.secret && chown peercached /etc/peercached/cluster.secret
claim "an engine does not read the secret, and the daemon does" unreadable /etc/peercached/cluster.secret
claim "the daemon's user is an operator" as peercached $ctl status
claim "an operator sees the page" bash -c "$ctl status | grep -q '1 page'"

claim "a reload without change" systemctl reload peercached
echo 'log_level = "debug"' >>/etc/peercached/peercached.toml
claim "a reload with a change" systemctl reload peercached
claim "which is in force" bash -c "$ctl config | grep -E '^log_level +\"debug\"'"
echo 'log_level = 7' >>/etc/peercached/peercached.toml
reload_fails() { ! systemctl reload peercached; }
claim "a reload that cannot work fails" reload_fails
claim "and changes nothing" systemctl is-active peercached
sed -i '/log_level/d' /etc/peercached/peercached.toml
claim "the journal knows warnings by their priority" \
    bash -c 'journalctl -u peercached -p warning --no-pager | grep -q "reloaded: log_level"'

# From here on it is restarted often.
sed -i 's/^pool_size.*/pool_size = "64MiB"/' /etc/peercached/peercached.toml
before=$(systemctl show -P MainPID peercached)
mkdir -p /etc/systemd/system/peercached.service.d
printf '[Service]\nWatchdogSec=3\n' >/etc/systemd/system/peercached.service.d/soon.conf
systemctl daemon-reload
systemctl restart peercached
claim "a healthy daemon outlives the watchdog's time" bash -c "sleep 5; systemctl is-active peercached"
kill -STOP "$(systemctl show -P MainPID peercached)"
restarted() { [[ $(systemctl show -P NRestarts peercached) == 1 ]] && systemctl is-active peercached; }
claim "a daemon that hangs is restarted" within 60 restarted
claim "by another process" test "$(systemctl show -P MainPID peercached)" != "$before"

install -d -o peercached -g peercached /mnt/nvme0
cat >>/etc/peercached/peercached.toml <<'END'
disk_enabled = true
disk_path = "/mnt/nvme0/peercached"
disk_size = "1GiB"
END
refused() { ! systemctl restart peercached && journalctl -u peercached --no-pager | grep ReadWritePaths=; }
claim "a disk that the unit does not open is refused, with what to do" refused
printf '[Service]\nReadWritePaths=/mnt/nvme0\n' >/etc/systemd/system/peercached.service.d/disk.conf
systemctl daemon-reload
claim "and taken once it does" systemctl restart peercached
claim "it writes there" bash -c "$ctl status | tee /dev/stderr | grep -E '^disk +'"

sed -i '/^disk_/d' /etc/peercached/peercached.toml
echo 'pool_file = "/dev/shm/peercached/pool"' >>/etc/peercached/peercached.toml
claim "a pool in a file is taken" systemctl restart peercached
claim "pages are set there" as engine /opt/peercached/bin/python /proof/client.py
systemctl restart peercached
claim "and outlive the daemon" $ctl exists k -n n
kill -KILL "$(systemctl show -P MainPID peercached)"
claim "also one that is killed" within 60 $ctl exists k -n n

claim "it stops" systemctl stop peercached
claim "without failing" test "$(systemctl show -P Result peercached)" = success
claim "and the sockets' folder stays" test -d /run/peercached
systemd-analyze security peercached --no-pager | tail -1 >/proof/exposure
journalctl -u peercached --no-pager >/proof/journal
touch /proof/done
systemctl --no-block poweroff
