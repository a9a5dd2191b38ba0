"""The HTTP server for monitoring: read-only, on `metrics_host`:`metrics_port`.

message.py  a request and a response
server.py   connections, limited in number and time; h11 implements the protocol
routes.py   maps paths to handlers
"""
