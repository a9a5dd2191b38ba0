"""For routers: how many tokens of a prompt each node of the cluster has.

It asks a daemon over HTTP (docs/operations.md, `/api/v1/prefix`), so its host needs no daemon.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from peercache_client.connector.keys import namespace_of, suffixes_of
from peercache_client.connector.metadata import ConnectorMetadata
from peercache_client.connector.tokens import count_tokens, first_tokens, seed_of
from peercache_client.page_hash import page_hashes

# Pages of one question; a daemon takes no more.
PAGES_MAX: Final = 4096


class PrefixIndex:
    """Thread safe. `metadata`: that of the engines, of one of their ranks. A router needs only the
    fields that are part of the keys."""

    def __init__(
        self,
        metadata: ConnectorMetadata,
        page_bytes: Sequence[int],
        url: str,
        *,
        timeout_s: float = 1.0,
    ) -> None:
        """`page_bytes`: the engines' `kv_item_lens`. `url`: the monitoring port of any node, for
        example "http://10.0.0.1:31997". ValueError for other forms."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"url is {url!r}: one like http://10.0.0.1:31997 is wanted")
        if not page_bytes:
            raise ValueError("page_bytes is empty: give the kv_item_lens of the engines")
        self._metadata = metadata
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = f"{parts.path.rstrip('/')}/api/v1/prefix"
        self._timeout_s = timeout_s
        self._namespace = namespace_of(metadata)
        # The piece that a store writes last: one key for each page.
        self._suffix = suffixes_of(metadata, page_bytes)[-1]

    def keys(
        self,
        tokens: Sequence[int],
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ) -> list[str]:
        """One key for each full page, at most PAGES_MAX. ValueError for an invalid token or
        salt."""
        size, boundary = self._metadata.page_size, self._metadata.boundary_tokens
        pages = min(max(0, count_tokens(tokens) - boundary) // size, PAGES_MAX)
        covered = first_tokens(tokens, pages * size + boundary)
        seed = seed_of((extra_key, cache_salt))
        hashes = page_hashes(covered, size, seed, pairs=self._metadata.is_eagle)
        return [page + self._suffix for page in hashes]

    def prefix_by_node(
        self,
        tokens: Sequence[int],
        *,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ) -> dict[str, int]:
        """Tokens from the first one on that each node has, by node id; the longest prefix first.
        Nodes that have none are left out. It is a hint: the pages may be evicted meanwhile.

        ValueError for an invalid token or salt; OSError if the daemon does not answer."""
        keys = self.keys(tokens, extra_key=extra_key, cache_salt=cache_salt)
        if not keys:
            return {}
        found = self._post({"namespace": self._namespace, "keys": keys})
        size = self._metadata.page_size
        return {node["node_id"]: node["prefix"] * size for node in found["nodes"]}

    def _post(self, document: dict[str, Any]) -> Any:
        where = f"http://{self._host}:{self._port}{self._path}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request("POST", self._path, json.dumps(document).encode())
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.client.OK:
                why = body.decode(errors="replace").strip()[:200]
                raise OSError(f"{where} answered {answer.status}: {why}")
            return json.loads(body)
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"{where} gave no usable answer: {error!r}") from error
        finally:
            connection.close()
