"""The HTTP door for monitoring: read-only, on `metrics_host`:`metrics_port`.

message.py  what a request asks and what a response says
server.py   connections: bounded, with deadlines; the protocol itself is h11's
routes.py   which path is answered by whom
"""
