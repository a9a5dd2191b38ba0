"""The two commands.

`daemon.py` is `peercached`: the daemon, and `peercached config`. `ctl.py` is `peercachectl`, the
operator's tool: a client of the admin socket (and, for single pages, of the workers' socket) with
one module per command. `exits.py` has its exit codes, `connection.py` how it finds the daemon.
"""
