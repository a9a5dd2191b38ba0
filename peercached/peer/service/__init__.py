"""The gRPC service that peers call.

server           listens on the meta port
servicer         checks the caller and the message, then calls the node
local_node       serves peers' requests on this node
relay            operators' calls to other members
security         who was refused, and what is not encrypted
"""
