"""Calls between daemons: authentication, TLS, limits on strangers, deadlines, and the failure
detector.

auth             the two-step handshake, sessions
node_key         the key pair by which a node proves its name
tls              certificates of both sides, loaded again when the files change
certificates     what is wrong with such files; authority makes them
client           one channel per peer address, with its handshake and deadlines
failures         why a call failed, as types
failure_detector makes suspects of failed calls, and clears who answers a ping
gate             reads nothing of a call before its session is known
doors            closes connections that do not authenticate
wire             protobuf messages <-> plain values, with every bound checked
"""
