"""The native data plane from the control plane's side: made from the configuration, and described.

make         the engine, guarded and started
status       pool and workers in the status document, with findings
transport    how pages travel: the log at start, and findings
disk         the disk tier's findings
recovery     what a restart kept
latencies    all latencies of the node, with names for people
"""
