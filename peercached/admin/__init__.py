"""The operator's door: a gRPC service on a Unix socket of this host.

`status.py` is the one document that command line, dashboard and tests read; `server.py` serves
it inside the daemon; `client.py` fetches it and says plainly what is wrong when it cannot.
"""
