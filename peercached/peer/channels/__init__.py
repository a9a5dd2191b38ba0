"""Connections to the data planes of other nodes.

connects         RDMA: the reader asks for the other end
accepts          the holder makes the other end
ends             converts and checks messages between the ends: packed bytes <-> protobuf
device_threads   threads for calls into devices, which may take seconds
data_links       opens the members' data ports with the tokens of the handshakes
status           how pages travel, in the status document
"""
