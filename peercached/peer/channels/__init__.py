"""RDMA channels between two nodes.

connects         the reader asks for the other end
accepts          the holder makes it
ends             what the two ends tell each other: packed bytes <-> messages, checked
device_threads   calls into devices may take seconds: they have threads of their own
"""
