"""The remote KV connector of SGLang's RFC 7746: an engine's KV pages, from and to all nodes.

    connector = RemoteKVConnector(ConnectorMetadata("acme/model", 64, "bfloat16"))
    connector.register_kv_buffers(kv_args)
    future, end = connector.store_kv_async(req_id, [(7, slice(0, 64))], tokens)
    stored_until = future.result()

Standard library only; sglang is neither needed nor imported. docs/connector.md tells the rest.

- `connector`: the methods of the RFC
- `metadata`: what it is told when it is made
- `prefetch_queue`, `store_queue`: those of many requests; `agreement`: on all TP ranks alike
- `buffers`: where page number N has its pieces
- `plan`, `tokens`: pages, tokens and salt of a call, checked
- `page_chain`, `requests`: hashes of a request, its calls that are under way
- `calls`, `chunks`: the threads that calls run on; their pages, chunk after chunk
"""

from peercache_client.connector.agreement import minimum_over
from peercache_client.connector.calls import ConnectorBusy
from peercache_client.connector.connector import RemoteKVConnector
from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.prefetch_queue import AsyncKVPrefetchQueue, Prefetched
from peercache_client.connector.store_queue import AsyncKVStoreQueue, Stored

__all__ = [
    "AsyncKVPrefetchQueue",
    "AsyncKVStoreQueue",
    "ConnectorBusy",
    "ConnectorMetadata",
    "Prefetched",
    "RemoteKVConnector",
    "Stored",
    "minimum_over",
]
