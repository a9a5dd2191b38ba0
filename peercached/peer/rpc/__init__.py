"""Calls between daemons: authentication, TLS, limits on strangers, timeouts, failure detector.

auth             the two-step handshake, sessions
node_key         the key pair that proves a node's identity
watched_files    new contents of files, used without a restart
tls              certificates of both sides, and of new files
certificates     checks the files of a node
authority        makes certificates
client           one channel per peer address, with its handshake and timeouts
failures         exception types for failed calls
failure_detector suspects a peer after a failed call, clears it after an answered ping
suspects         the state of the failure detector, without I/O
heads            the endpoints that discovery_addr stands for
pings            asks a peer whether this very process lives
connection_limits closes connections that do not authenticate
wire             protobuf messages <-> plain values, with every bound checked
tasks            background tasks
"""
