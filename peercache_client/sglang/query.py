"""Looks up which pages exist: one round trip for all pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from peercache_client import Client
from peercache_client.packed_keys import concatenate
from peercache_client.sglang.page_forms import KeyForm, keys_of
from peercache_client.worth import Worth


class Asked(NamedTuple):
    form: KeyForm | None  # None: a pool without bytes; all its pages exist
    hashes: Sequence[str]


def leading_pages(
    client: Client,
    asked: Asked,
    parent: str | None,
    timeout_s: float,
    hold_s: float = 0.0,
    *,
    count_tokens: bool = False,
    worth: Worth,
) -> int:
    """Counts the pages before the first missing one. A page exists if all its pieces exist.

    With `hold_s` a page counts only if its holders pin it for that long. With `count_tokens` the
    daemon counts the tokens of the pages. Pages that `worth` would rather compute count as missing.
    """
    if asked.form is None:
        return len(asked.hashes)
    keys = keys_of(asked.form, asked.hashes)
    pieces = len(asked.form.suffixes)
    forecast = client.forecast(
        keys,
        parent=parent,
        timeout_s=timeout_s,
        hold_s=hold_s,
        page_tokens=asked.form.indices_per_page if count_tokens else 0,
        page_keys=pieces,
        judged=worth.take_news(),
    )
    return worth.judge(asked.hashes, forecast, pieces)


def present_pages(
    client: Client,
    asked: Sequence[Asked],
    parent: str | None,
    timeout_s: float,
    hold_s: float = 0.0,
) -> list[list[bool]]:
    """For each pool, whether each of its pages exists; `hold_s` as in `leading_pages`. Holders
    limit how much they pin, and serve `asked` in order. So the KV pool comes first."""
    keys = concatenate([keys_of(each.form, each.hashes) for each in asked if each.form is not None])
    found: list[bool] = []
    if keys:
        found = client.contains(keys, parent=parent, timeout_s=timeout_s, hold_s=hold_s)
    answers = []
    begin = 0
    for each in asked:
        if each.form is None:
            answers.append([True] * len(each.hashes))
            continue
        pieces = len(each.form.suffixes)
        end = begin + pieces * len(each.hashes)
        of_pool = found[begin:end]
        begin = end
        if pieces > 1:
            of_pool = [all(of_pool[i : i + pieces]) for i in range(0, len(of_pool), pieces)]
        answers.append(of_pool)
    return answers
