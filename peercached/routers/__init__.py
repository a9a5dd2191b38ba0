"""The doors for routers: the gRPC service on `router_port`, and the token that opens it.

Routers are no members of the cluster. They know a token that is made from the cluster secret, but
not the secret itself, so they can neither join nor read pages.
"""
