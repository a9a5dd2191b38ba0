"""The admin interface: a gRPC service on a Unix socket of this host.

`status.py` defines the status document, which the command line, the dashboard and the tests read.
The other documents are smaller. `calls.py` defines the calls, `server.py` serves them inside the
daemon, and `client.py` makes them and explains connection failures.
"""

# NODE_KEY: request metadata, the target member's node id in UTF-8. VERSION_KEY: metadata of every
# answer, peercached's version on that member.
NODE_KEY = "peercached-node-bin"
VERSION_KEY = "peercached-version"
