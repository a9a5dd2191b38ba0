"""A request and a response, independent of their connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """`path` is not decoded; `query` is the text after the `?`; only a POST has a `body`."""

    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""

    @property
    def arguments(self) -> dict[str, str]:
        """The query's arguments; the last value of each. ValueError if the query is malformed."""
        found = parse_qs(self.query, keep_blank_values=True, strict_parsing=bool(self.query))
        return {name: values[-1] for name, values in found.items()}


@dataclass(frozen=True)
class Response:
    """`headers`: in addition to those of every response."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def text(words: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A one-line response for people."""
    return Response(f"{words}\n".encode(), TEXT, status)


def json_document(document: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A response with the document as JSON; `json.dumps` must accept it."""
    return Response(json.dumps(document, separators=(",", ":")).encode(), JSON, status)
