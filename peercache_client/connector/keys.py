"""The namespace and the keys of a rank's pages: a page hash, and a suffix for each piece."""

from __future__ import annotations

from collections.abc import Sequence

from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.identity import Topology, make_namespace, make_tag, rank_fields


def namespace_of(metadata: ConnectorMetadata) -> str:
    return make_namespace(
        metadata.model_name, metadata.model_revision, metadata.namespace, metadata.tenant
    )


def suffixes_of(metadata: ConnectorMetadata, sizes_bytes: Sequence[int]) -> tuple[str, ...]:
    """`sizes_bytes`: of a page's piece in each buffer, in the order of the buffers."""
    fields = rank_fields(Topology.of(metadata), shared_by_tp_ranks=metadata.is_mla_model, parts=0)
    fields += [
        f"logical_dtype={metadata.kv_cache_dtype}",
        f"page_size={metadata.page_size}",
        f"layout={metadata.layout}",
    ]
    tag = make_tag("connector", sizes_bytes, fields)
    return tuple(f".{tag}.{piece}" for piece in range(len(sizes_bytes)))
