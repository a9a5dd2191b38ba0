"""Checks of this host, most of them for RDMA and GPUs, each with a remedy.

finding.py    one result of a check: level, sentence, remedy
probe.py      run by the system's Python: the RDMA devices that pyverbs finds, as JSON
devices.py    runs probe.py and parses its output
cuda_probe.py run as a process: NVIDIA's driver and the GPUs that it shows, as JSON
gpu_facts.py  runs cuda_probe.py, looks at /dev, /proc, /sys and the systemd unit
gpu.py        checks: driver, device files, MIG slices, workers that the daemon cannot see
memory.py     checks: locked memory, huge pages
kernel.py     checks: drivers, /dev/infiniband, the kernel's TLS
ports.py      checks: active ports, GIDs, MTU
firewall.py   checks: packet filters of this host
peers.py      checks: whether the peers' ports can be reached
access.py     checks: that engines are neither operators nor members
store.py      checks: that the object store answers
packages.py   checks: that one distribution owns the client's files
examine.py    gathers the facts and runs all checks

Checks are plain functions of facts. Only devices.py, gpu_facts.py, peers.py, store.py
and examine.py access the machine.
"""
