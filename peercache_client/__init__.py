"""The thin client of peercached: shares memory with the daemon of this host, moves no bytes.

    from peercache_client import Client

    with Client("/run/peercached/peercached.sock", namespace="llama-3-8b/bf16/tp0") as client:
        region = client.alloc(64 << 20)
        region.view[:4096] = page
        client.batch_set([key], region, [0], 4096)
        hits = client.batch_exists([key])
        statuses = client.batch_get([key], region, [8192], 4096)

Needs the standard library only. After construction nothing that depends on the daemon or the
network raises: it is a miss, told by a falsy `Status`. Wrong arguments raise TypeError or
ValueError.
"""

from peercache_client.aio import AsyncClient
from peercache_client.client import Client
from peercache_client.region import Region
from peercache_client.status import Status

__all__ = ["AsyncClient", "Client", "Region", "Status"]
