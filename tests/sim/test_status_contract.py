"""The status document of real data planes has exactly the fields of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from peercached import _native
from peercached.admin.status import Status
from sim.real_removals import KEYS, RealRemovals
from sim.test_real_engine import worker

# Filled by the reader, or only with TLS.
OPTIONAL = {"schema_version", "tls", "tls_not_after", "tls_seconds_left", "tls_reloads"}
# Lists whose entries this test checks. The others may be empty here, too.
FULL = {"pool.classes", "quotas", "workers", "transfer", "membership.members", "followers"}


def differences(model: type[BaseModel], found: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Fields that only one of the two has."""
    fields = model.model_fields
    yield from (f"{at}{name} is not in the model" for name in found.keys() - fields.keys())
    yield from (f"{at}{name} is missing" for name in fields.keys() - found.keys() - OPTIONAL)
    for name in fields.keys() & found.keys():
        kind = fields[name].annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from differences(kind, found[name], f"{at}{name}.")
        for part in get_args(kind):
            if isinstance(part, type) and issubclass(part, BaseModel):
                if at + name in FULL and not found[name]:
                    yield f"{at}{name} is empty"
                for entry in found[name]:
                    yield from differences(part, entry, f"{at}{name}.")


class WithQuotas(RealRemovals):
    def settings(self, name: str) -> dict[str, Any]:
        return {**super().settings(name), "namespace_quotas": ["*=0.5:0.5"]}


def test_status_has_exactly_the_fields_of_its_model(tmp_path: Path) -> None:
    with WithQuotas(tmp_path, 1, 2, heads=2, max_masters=2, delay_s=0.02) as cluster:
        cluster.until_agreed(100)
        cluster.run(10)
        first, second = cluster.nodes.values()
        for setter, reader, key in ((first, second, KEYS[0]), (second, first, KEYS[1])):
            cluster.set_page(setter, worker(cluster, setter, key), key)
            cluster.run(1)
            cluster.get_page(reader, worker(cluster, reader, key), key)
            cluster.run(1)
        for node in (first, second):
            found = node.ask(node.daemon.status.document)
            assert sorted(differences(Status, found)) == []
            for outcomes in (found["operations"]["set"], found["operations"]["get"]):
                assert list(outcomes) == list(_native.PAGE_STATUSES)
