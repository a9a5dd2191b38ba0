"""The operator's door: a gRPC service on a Unix socket of this host.

`status.py` is the one document that command line, dashboard and tests read, beside smaller ones;
`calls.py` has the calls, `server.py` serves them inside the daemon, `client.py` makes them and says
plainly what is wrong when it cannot.
"""

SERVICE = "peercached.admin.v1.Admin"
# Metadata of a call: the member that is meant, UTF-8. Of each answer: peercached's version there.
NODE_KEY = "peercached-node-bin"
VERSION_KEY = "peercached-version"
