#!/bin/busybox sh
# Process 1 of an emulated guest, in its initramfs: busybox and kernel modules. Mounts this
# machine's files, puts a layer in memory over them, so that the guest may write anywhere, and goes
# there.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
set -e
trap 'echo "first stage failed"; echo o >/proc/sysrq-trigger; sleep 60' EXIT
for module in /modules/*.ko; do insmod "$module"; done
shared=trans=virtio,version=9p2000.L,msize=512000,cache=loose
mount -t 9p -o "$shared,ro" root /host
mount -t tmpfs -o mode=755 layer /layer
mkdir /layer/written /layer/work /sysroot
mount -t overlay -o lowerdir=/host,upperdir=/layer/written,workdir=/layer/work root /sysroot
mount -t tmpfs -o mode=755 run /sysroot/run
mkdir /sysroot/run/rdma-vm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 run /sysroot/run/rdma-vm
for folder in proc sys dev; do mount --move /$folder /sysroot/$folder; done
exec switch_root /sysroot /bin/bash /run/rdma-vm/second.sh
