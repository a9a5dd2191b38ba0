"""The peers' calls: gRPC around the state machines of membership/ and directory/.

auth.py        who may call: the two-step handshake, sessions
tls.py         certificates of both sides, taken up anew when their files change
certificates.py  what is wrong with such files, and whose they are
gate.py        nothing of a call is read before its session is known
doors.py       connections that prove nothing are shut
wire.py        protobuf messages <-> plain values, with every bound checked
client.py      one channel per peer address, with its handshake; deadlines
server.py      the service: thin
heartbeats.py  drives Membership
connects.py    RDMA channels: the reader asks for the holder's end
accepts.py     RDMA channels: the holder gives it
device_threads.py  both: calls into devices, which may take seconds, in threads
channel_ends.py  what they tell each other: packed bytes <-> messages, checked
streams.py     drives the HolderStreams, and scans the pool for their resyncs
lookups.py     drives Lookups
suspects.py    who is suspect, and when it is asked again
"""
