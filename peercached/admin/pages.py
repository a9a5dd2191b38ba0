"""Single pages of one node's pool: those that were read most lately, or those that are pinned."""

from __future__ import annotations

from pydantic import Field

from peercached.admin.status import Document, Hex128, Part


class ListedPage(Part):
    """A page of this node's pool."""

    digest: Hex128 = ""  # of its key, as `locate` gives it
    namespace_id: Hex128 = ""
    namespace: str = ""  # empty: no worker of this node has opened it lately
    bytes: int = 0
    reads: int = 0  # by workers here and by peers, in the last 10 to 20 minutes; hot pages only
    idle_s: float = 0.0  # since its last use; hot pages only
    left_s: float = 0.0  # until its pin ends; pinned pages only
    holders: list[str] = Field(default_factory=list)  # node ids, this node among them


class Pages(Document):
    """The whole document."""

    node_id: str = ""  # whose pool
    order: str = ""  # "hot": most reads first; "pinned": those that end first
    pages: list[ListedPage] = Field(default_factory=list)
