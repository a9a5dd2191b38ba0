"""What exists, in one round trip, whatever the number of pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from peercache_client import Client
from peercache_client.packed_keys import concatenate
from peercache_client.sglang.page_forms import PageForm, keys_of


class Asked(NamedTuple):
    form: PageForm | None  # None: a pool without bytes, all of whose pages exist
    hashes: Sequence[str]


def leading_pages(
    client: Client, asked: Asked, parent: str | None, timeout_s: float, hold_s: float = 0.0
) -> int:
    """How many pages exist from the first one on. A page exists when all its pieces do.

    With `hold_s` only those count that their holders keep for so long.
    """
    if asked.form is None:
        return len(asked.hashes)
    keys = keys_of(asked.form, asked.hashes)
    present = client.batch_exists(keys, parent=parent, timeout_s=timeout_s, hold_s=hold_s)
    return present // len(asked.form.suffixes)


def present_pages(
    client: Client,
    asked: Sequence[Asked],
    parent: str | None,
    timeout_s: float,
    hold_s: float = 0.0,
) -> list[list[bool]]:
    """For each pool, for each of its pages, whether it exists; with `hold_s` as above. In the
    order of `asked` for as long as the holders' bounds allow, so KV comes first."""
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
