"""RDMA channels between two nodes.

connects         the reader asks for the other end
accepts          the holder makes the other end
ends             converts and checks messages between the ends: packed bytes <-> protobuf
device_threads   threads for calls into devices, which may take seconds
"""
