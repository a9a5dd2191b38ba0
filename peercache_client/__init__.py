"""Client of peercached: shares memory with the daemon on this host and moves no bytes itself.

    from peercache_client import Client

    with Client("/run/peercached/peercached.sock", namespace="llama-3-8b/bf16/tp0") as client:
        region = client.alloc(64 << 20)
        region.view[:4096] = page
        client.batch_set([key], region, [0], 4096)
        hits = client.batch_exists([key])
        statuses = client.batch_get([key], region, [8192], 4096)

It needs only the standard library. After construction, failures of the daemon or the network do not
raise. They count as misses, reported by a falsy `Status`. Wrong arguments raise TypeError or
ValueError.
"""

from peercache_client._ipc import Cancel
from peercache_client.aio import AsyncClient
from peercache_client.client import Client
from peercache_client.region import Region
from peercache_client.status import Status

__all__ = ["AsyncClient", "Cancel", "Client", "Region", "Status"]
