"""The two commands.

`daemon.py` is `peercached`: the daemon, and `peercached config`. `ctl.py` is `peercachectl`, the
operator's tool, with one module per command. It is a client of the admin socket, and of the
workers' socket for single pages. `exits.py` has its exit codes, `connection.py` finds the daemon.
"""
