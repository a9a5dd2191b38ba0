"""The remote KV connector of SGLang's RFC 7746: moves an engine's KV pages to and from the cluster.

    connector = RemoteKVConnector(ConnectorMetadata("acme/model", 64, "bfloat16"))
    connector.register_kv_buffers(kv_args)
    future, end = connector.store_kv_async(req_id, [(7, slice(0, 64))], tokens)
    stored_until = future.result()

It needs only the standard library, not sglang. See docs/vllm.md.

- `interface`: the RFC's methods; `connector`: what they do
- `metadata`: the connector's settings
- `prefetch_queue`, `store_queue`: many requests at a time; `agreement`: alike on all TP ranks
- `keys`: the namespace and the keys of pages; `prefix_index`: for routers, which node has a prefix
- `buffers`: the addresses of a page's pieces
- `plan`, `tokens`: check the pages, tokens and salt of a call
- `page_chain`, `requests`: a request's hashes and its running calls
- `calls`, `chunks`: the threads that run calls; the chunks of one call
"""

from peercache_client.connector.agreement import minimum_over
from peercache_client.connector.calls import ConnectorBusy
from peercache_client.connector.connector import RemoteKVConnector
from peercache_client.connector.interface import Moved, RemoteKVConnectorBase
from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.prefetch_queue import AsyncKVPrefetchQueue, Prefetched
from peercache_client.connector.prefix_index import PrefixIndex
from peercache_client.connector.store_queue import AsyncKVStoreQueue, Stored

__all__ = [
    "AsyncKVPrefetchQueue",
    "AsyncKVStoreQueue",
    "ConnectorBusy",
    "ConnectorMetadata",
    "Moved",
    "Prefetched",
    "PrefixIndex",
    "RemoteKVConnector",
    "RemoteKVConnectorBase",
    "Stored",
    "minimum_over",
]
