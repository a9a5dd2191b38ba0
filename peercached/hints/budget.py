"""How many bytes the hints of a namespace may cost a node.

A node has a total for hints. A tenant counts if its hints brought or kept pages lately. These have
equal parts of it, and so have a tenant's namespaces. So names without pages take nothing, and
nobody's part grows with the number of his hints or namespaces. The namespaces under one pattern of
`namespace_quotas` are one tenant; any other namespace is its own.

A part bounds two things: the bytes that lie in the pool for hints, and their flow. A namespace that
was silent may bring its whole part at once, and the same bytes again every REFILL_S.

Pure: `now` is monotonic seconds.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ACTIVE_S = 60.0
REFILL_S = 10.0
NAMESPACES_MAX = 1024
NAMESPACES_SHOWN_MAX = 64


@dataclass(slots=True)
class _Spender:
    tenant: str
    heard_at: float
    spent_bytes: float = 0.0  # of its part; it falls to 0 in REFILL_S
    as_of: float = 0.0


@dataclass(frozen=True, slots=True)
class Spender:
    """A namespace that sent hints lately."""

    namespace: str
    tenant: str
    part_bytes: int
    left_bytes: int  # of it, now


class Budget:
    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """`patterns`: of tenants; the first that matches counts."""
        self._spenders: OrderedDict[str, _Spender] = OrderedDict()  # heard least lately first
        self._tenants: Counter[str] = Counter()  # namespaces of each
        self.set_tenants(patterns)

    def set_tenants(self, patterns: Iterable[str]) -> None:
        """Namespaces that were heard before keep their tenants until they are silent."""
        self._patterns = [(one, _matcher(one)) for one in patterns]

    def hear(self, namespace: str, now: float) -> None:
        """A hint of it has brought or kept pages."""
        spender = self._spenders.get(namespace)
        if spender is None:
            if self._is_full:
                return
            spender = self._spenders[namespace] = _Spender(self._tenant_of(namespace), now)
            self._tenants[spender.tenant] += 1
        spender.heard_at = now
        self._spenders.move_to_end(namespace)

    def part(self, namespace: str, total_bytes: int) -> int:
        """The bytes of `total_bytes` that this namespace may have. Before it is heard, that
        is the part that it would get; 0 if there are too many."""
        spender = self._spenders.get(namespace)
        if spender is None and self._is_full:
            return 0
        tenant = self._tenant_of(namespace) if spender is None else spender.tenant
        tenants = len(self._tenants) + (tenant not in self._tenants)
        return total_bytes // tenants // (self._tenants[tenant] + (spender is None))

    def left(self, namespace: str, total_bytes: int, now: float) -> int:
        """The bytes that it may bring now."""
        spender = self._spenders.get(namespace)
        part = self.part(namespace, total_bytes)
        if spender is None:
            return part
        spent = spender.spent_bytes - part * (now - spender.as_of) / REFILL_S
        return max(0, part - max(0, round(spent)))

    def spend(self, namespace: str, spent_bytes: int, total_bytes: int, now: float) -> None:
        """It brought so many bytes."""
        self.hear(namespace, now)
        spender = self._spenders.get(namespace)
        if spender is None:
            return
        part = self.part(namespace, total_bytes)
        before = max(0.0, spender.spent_bytes - part * (now - spender.as_of) / REFILL_S)
        spender.spent_bytes, spender.as_of = before + spent_bytes, now

    def spenders(self, total_bytes: int, now: float) -> list[Spender]:
        """Those heard last, in front; NAMESPACES_SHOWN_MAX at most."""
        self.forget(now)
        return [
            Spender(
                name,
                self._spenders[name].tenant,
                self.part(name, total_bytes),
                self.left(name, total_bytes, now),
            )
            for name in itertools.islice(reversed(self._spenders), NAMESPACES_SHOWN_MAX)
        ]

    def _tenant_of(self, namespace: str) -> str:
        return next((name for name, matches in self._patterns if matches(namespace)), namespace)

    @property
    def _is_full(self) -> bool:
        return len(self._spenders) >= NAMESPACES_MAX

    def forget(self, now: float) -> None:
        """Forgets silent namespaces: their parts are full again by then. Call it before hints."""
        while self._spenders:
            name, spender = next(iter(self._spenders.items()))
            if now - spender.heard_at < ACTIVE_S:
                return
            del self._spenders[name]
            self._tenants[spender.tenant] -= 1
            if not self._tenants[spender.tenant]:
                del self._tenants[spender.tenant]


def _matcher(pattern: str) -> Any:
    """As the engine matches quotas: `*` stands for any text, slashes too."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch
