"""The views that a membership tells."""

from __future__ import annotations

from peercached.membership import View
from peercached.news import Event, News
from peercached.peer.membership.cluster import ViewFound


class ViewNews(News):
    """Notes the views alone."""

    def __init__(self, views: list[View]) -> None:
        super().__init__()
        self._views = views

    def post(self, event: Event) -> None:
        if isinstance(event, ViewFound):
            self._views.append(event.view)
