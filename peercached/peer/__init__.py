"""The peers' calls: gRPC around the state machines of membership/ and directory/.

auth.py        who may call: the two-step handshake, sessions, TLS
wire.py        protobuf messages <-> plain values, with every bound checked
client.py      one channel per peer address, with its handshake; deadlines
server.py      the service: thin
heartbeats.py  drives Membership
connects.py    RDMA channels: the reader asks for the holder's end
accepts.py     RDMA channels: the holder gives it
channel_ends.py  what they tell each other: packed bytes <-> messages, checked
streams.py     drives the HolderStreams, and scans the pool for their resyncs
lookups.py     drives Lookups
suspects.py    who is suspect, and when it is asked again
"""
