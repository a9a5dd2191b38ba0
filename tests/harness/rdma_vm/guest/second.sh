# Process 1 of the guest, on its final root: devices, networks, then the command.
# /run/rdma-vm is a folder of the host's: it has `settings` and `job`, and gets `ready` and `status`.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
power_off() {
    sync
    echo o >/proc/sysrq-trigger
    while :; do sleep 1; done
}
trap 'echo "second stage: line $LINENO failed"; power_off' ERR
set -E
here=/run/rdma-vm
. $here/settings # engine nodes timeout_s shared_folder mhz

if [[ $engine == uml ]]; then
    out=/dev/tty1 err=/dev/tty2
    stty -F $out raw -echo
    stty -F $err raw -echo
    mount -t hostfs -o "$shared_folder" none "$shared_folder"
    # perftest looks up the rate of its time stamps, which UML does not tell.
    { cat /proc/cpuinfo; echo "cpu MHz : $mhz"; } >/run/cpuinfo
    mount --bind /run/cpuinfo /proc/cpuinfo
else
    out=/dev/vport0p1 err=/dev/vport0p2
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose shared "$shared_folder"
fi

mkdir -p /dev/shm /dev/pts /run/lock
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
ln -sfn /proc/self/fd /dev/fd
ln -sfn fd/0 /dev/stdin
ln -sfn fd/1 /dev/stdout
ln -sfn fd/2 /dev/stderr
echo rdma-vm >/proc/sys/kernel/hostname
ulimit -l unlimited # what is registered with a device is locked
ulimit -n 65536
# Shared folders are written behind: within two seconds, not thirty.
echo 100 >/proc/sys/vm/dirty_writeback_centisecs
echo 100 >/proc/sys/vm/dirty_expire_centisecs
# Where one processor serves pollers, they take turns of 100 us.
mount -t debugfs debugfs /sys/kernel/debug
echo 100000 >/sys/kernel/debug/sched/min_granularity_ns
echo 200000 >/sys/kernel/debug/sched/latency_ns

# The network: dummy0 is a wire; on it a macvlan per node, each with an Ethernet address of its own.
# Packets really cross it between any two nodes, for rdma_rxe binds its routes to its own netdev.
#   accept_local   takes packets that come from another address of this same machine
#   rp_filter      would drop them, for the way back seems to be another
#   arp_*          each netdev speaks for its own address only
#   backlog        of received packets: large READs overran a short one, and every loss costs a
#                  retransmission timeout
echo 20000 >/proc/sys/net/core/netdev_max_backlog
for scope in all default; do
    for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
        echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/$scope/${setting%=*}"
    done
done
ip link set lo up
[[ -e /sys/class/net/dummy0 ]] || ip link add dummy0 type dummy
ip link set dummy0 mtu 9000 up
for ((node = 0; node < nodes; node++)); do
    ip link add "rdma$node" link dummy0 mtu 9000 type macvlan mode bridge
    ip address add "10.99.0.$((node + 1))/24" dev "rdma$node"
    ip link set "rdma$node" up
    rdma link add "rxe$node" type rxe netdev "rdma$node"
done
# Neighbours that know each other: the first question for an address costs seconds here, with the
# caller inside ibv_modify_qp.
for ((node = 0; node < nodes; node++)); do
    for ((other = 0; other < nodes; other++)); do
        ip neigh replace "10.99.0.$((other + 1))" dev "rdma$node" nud permanent \
            lladdr "$(cat "/sys/class/net/rdma$other/address")"
    done
done

# Through pipes: the command must not take our streams for terminals, and a virtio port opens once.
mkfifo /run/out /run/err
cat /run/out >$out &
out_carrier=$!
cat /run/err >$err &
err_carrier=$!
trap - ERR
read -r ready_s _ </proc/uptime
echo "$ready_s" >$here/ready
sync $here/ready
(
    . $here/job # the environment, the current directory, `command`
    export RDMA_VM=$engine RDMA_VM_NODES=$nodes
    exec timeout -k 5 "$timeout_s" "${command[@]}"
) </dev/null >/run/out 2>/run/err
status=$?
read -r done_s _ </proc/uptime
# Processes that the command left running may hold the pipes open: they get two seconds.
{ sleep 2; kill $out_carrier $err_carrier; } 2>/dev/null &
wait $out_carrier $err_carrier
echo "$status $ready_s $done_s" >$here/status
power_off
