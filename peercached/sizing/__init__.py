"""How much memory a cache needs, and what it would find.

models       bytes of KV cache for each token of a model
working_set  bytes for so many users with so long prompts
trace        reads requests from a file in Mooncake's format
simulation   replays requests against pools of given sizes
"""
