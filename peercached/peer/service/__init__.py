"""The gRPC service that peers call.

server           the port
servicer         checks the caller and the message, then asks the node
local_node       what this node does for a peer
relay            operators' calls to other members
"""
