"""An adapter with one deliberate mistake fails the tests that guard against it."""

from pathlib import Path

import pytest
from harness.broken_client import Variant, check_in_fork

KEYS = ["test_lmcache_namespace.py::test_keys_that_differ_never_meet"]
LAYOUTS = ["test_lmcache_namespace.py::test_layouts_that_differ_never_meet"]
APART = ["test_lmcache_namespace.py::test_servers_that_are_kept_apart_never_meet"]
CONTENT = ["test_lmcache_contract.py::test_chunks_that_one_server_stores_another_loads"]
COPIED = ["test_lmcache_contract.py::test_private_l1_memory_is_copied"]
GONE = ["test_lmcache_contract.py::test_a_page_that_goes_after_the_lookup_is_a_miss"]
HOLE = [
    "test_lmcache_contract.py::test_chunks_behind_a_missing_one_are_found_where_lmcache_asks_for_them"
]
HINT = ["test_lmcache_contract.py::test_a_lookup_does_not_depend_on_its_hint"]
SERDE = ["test_lmcache_contract.py::test_servers_with_the_same_serializer_share_pages"]
LATE = ["test_lmcache_outages.py::test_a_load_that_the_daemon_may_still_write_has_not_ended"]
UNSTORED = ["test_lmcache_outages.py::test_chunks_that_were_not_stored_stay_in_l1"]

VARIANTS = {
    "nothing is wrong": Variant(
        "identity.py",
        "",
        "",
        [*CONTENT, *COPIED, *GONE, *HOLE, *LATE, *UNSTORED, *LAYOUTS, *HINT, *SERDE],
    ),
    "pages go into each other's places": Variant(
        "lmcache/l1_pages.py",
        "[page.address - self._memory.address for page in pages]",
        "[page.address - self._memory.address for page in (pages if storing else pages[::-1])]",
        CONTENT,
    ),
    "copied pages go into each other's places": Variant(
        "lmcache/l1_pages.py",
        "[_ipc.view_at(page.address, page.length) for page in pages]",
        "[_ipc.view_at(each.address, each.length) for each in (pages if storing else pages[::-1])]",
        COPIED,
    ),
    "the parts of the second client are left out": Variant(
        "lmcache/l1_pages.py", "range(1, min(len(clients), len(parts)))", "range(0)", COPIED
    ),
    "a chunk that is not there is a hit": Variant(
        "lmcache/adapter.py", "                if there:\n", "                if True:\n", HOLE
    ),
    "the answers of a lookup are in another order": Variant(
        "lmcache/adapter.py",
        "forecast.present[:wanted], strict=True)",
        "forecast.present[:wanted][::-1], strict=True)",
        HOLE,
    ),
    "a chunk that did not arrive counts as loaded": Variant(
        "lmcache/adapter.py", "            if status:\n", "            if True:\n", GONE
    ),
    "a load ends while the daemon may still write": Variant(
        "lmcache/l1_pages.py", '"silence_timeout_s": None', '"silence_timeout_s": 0.0', LATE
    ),
    "a load ends before it has begun": Variant(
        "tasks.py",
        "        self._waiting.put((number, task))\n",
        "        self._waiting.put((number, task))\n"
        "        if 'load' in self._name:\n"
        "            self._results[number] = self._miss(task)\n"
        "            self._notify()\n",
        LATE,
    ),
    "a store that failed is reported as success": Variant(
        "lmcache/adapter.py", "L2StoreResult(all(statuses), ", "L2StoreResult(True, ", UNSTORED
    ),
    "the model left out of the namespace": Variant(
        "lmcache/identity.py", "(model, settings.", "('', settings.", KEYS
    ),
    "the tenant left out of the namespace": Variant(
        "lmcache/identity.py", "settings.tenant),", "''),", APART
    ),
    "the rank left out of the key": Variant(
        "lmcache/identity.py", "{object_key.kv_rank:08x}", "", KEYS
    ),
    "the object group left out of the key": Variant(
        "lmcache/identity.py", "{object_key.object_group_id}", "", KEYS
    ),
    "the salt left out of the key": Variant(
        "lmcache/identity.py", "{object_key.cache_salt}", "", KEYS
    ),
    "a lookup asks only in the layout of its hint": Variant(
        "lmcache/adapter.py",
        "dict.fromkeys((hints.get(key.object_group_id, used), used))",
        "(hints.get(key.object_group_id, used),)",
        HINT,
    ),
    "a server that has moved no page knows no serializer": Variant(
        "lmcache/adapter.py",
        "used = self._layouts.get((model, key.object_group_id), FLAT)",
        "used = self._layouts.get((model, key.object_group_id), '')",
        SERDE,
    ),
    "all layouts count as flat bytes": Variant(
        "lmcache/identity.py", "if dtypes == (", "if True or dtypes == (", LAYOUTS
    ),
    "the dtype left out of the key": Variant("lmcache/identity.py", ' {dtype}"', '"', LAYOUTS),
    "the shape left out of the key": Variant(
        "lmcache/identity.py", "{','.join(map(str, shape))}", "", LAYOUTS
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_adapter_fails(tmp_path: Path, name: str) -> None:
    check_in_fork(VARIANTS[name], Path(__file__).parent, tmp_path)
