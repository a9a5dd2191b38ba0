"""The gRPC service that peers call.

server           listens on the meta port
servicer         checks the caller and the message, then calls the node
auth_interceptor reads nothing of a call before its session is known
handshakes       answers handshakes
refusals         gRPC statuses of refused calls
cluster_wide     clears a namespace on all members, and locates one key
trace            times the steps of one get
local_node       serves peers' requests on this node
relay            operators' calls to other members
security         who was refused, and what is not encrypted
"""
