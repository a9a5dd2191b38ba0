"""Everything that crosses the network on the control plane: gRPC around the state machines of
membership/ and directory/. Each package uses those below it only.

service/      answers the calls of peers
drain/        hands pages over and leaves
directory/    records, lookups, clears
removals/     removals that hold in the whole cluster
channels/     RDMA channels
membership/   the view, kept by masters or by etcd
rpc/          calls, authentication, TLS, failures
"""
