#!/bin/bash
# Process 1 of a User Mode Linux guest, on this machine's files, which are mounted read-only.
# Puts a layer in memory over them, so that the guest may write anywhere, and goes there.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
set -e
mount -t proc proc /proc
trap 'echo "first stage: line $LINENO failed"; echo o >/proc/sysrq-trigger; sleep 60' ERR
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=755 layer /mnt
mkdir /mnt/{written,work,root}
mount -t overlay -o lowerdir=/,upperdir=/mnt/written,workdir=/mnt/work root /mnt/root
mount -t tmpfs -o mode=755 run /run
mkdir /run/rdma-vm
mount -t hostfs -o "$VM_RUN" none /run/rdma-vm
exec switch_root /mnt/root /bin/bash /run/rdma-vm/second.sh
