"""What is this host's share in RDMA that does not work, and how is it mended?

finding.py    one result of a check: level, sentence, remedy
probe.py      run by the system's Python: the RDMA devices as pyverbs sees them, as JSON
devices.py    runs it; the devices as values
memory.py     checks: locked memory, huge pages
kernel.py     checks: drivers, /dev/infiniband
ports.py      checks: active ports, GIDs, MTU
firewall.py   checks: packet filters of this host
peers.py      checks: can the peers' ports be reached
examine.py    gathers the facts and runs all checks

Checks are plain functions of facts; only devices.py, peers.py and examine.py touch the machine.
"""
