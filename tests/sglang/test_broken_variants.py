"""A client with one deliberate mistake fails the tests that guard against it."""

from pathlib import Path

import pytest
from harness.broken_client import Variant, check

IDENTITY = ["test_identity.py::test_nodes_that_differ_never_meet"]
HEAD_GROUPS = ["test_head_groups.py::test_equal_keys_mean_equal_heads_and_are_sglangs"]
VARIANTS = {
    "nothing is wrong": Variant("identity.py", "", "", [*IDENTITY, "test_partial.py"]),
    "TP rank and size left out of the key": Variant(
        "identity.py", 'tp = f"{topology.tp_rank}of{topology.tp_size}"', 'tp = "any"', IDENTITY
    ),
    "PP rank left out of the key": Variant(
        "identity.py", "pp={topology.pp_rank}of{topology.pp_size}", "pp=any", IDENTITY
    ),
    "dtype left out of the key": Variant(
        "identity.py",
        "        f\"dtype={getattr(pool, 'dtype', None)}\",\n"
        '        f"logical_dtype={logical_dtype}",\n',
        "",
        IDENTITY,
    ),
    "both kinds of fp8 taken for one": Variant(
        "identity.py", "logical_dtype={logical_dtype}", "logical_dtype=", IDENTITY
    ),
    "layout left out of the key": Variant("identity.py", '    "layout",\n', "", IDENTITY),
    "pool name left out of the key": Variant(
        "identity.py",
        "pool={name}",
        "pool=any",
        ["test_side_pools.py::test_the_same_hash_in_two_pools_is_two_pages"],
    ),
    "a short write reported as success": Variant(
        "sglang/page_forms.py",
        "return Place(keys, [self._region], offsets, lengths, [])",
        "return Place(keys, [self._region], offsets, [each // 2 for each in lengths], [])",
        ["test_pages.py::test_a_page_that_one_node_sets_another_gets"],
    ),
    "head groups that are numbered in each rank anew": Variant(
        "sglang/pools.py", "first = topology.tp_rank * parts", "first = 0", HEAD_GROUPS
    ),
    "the number of head groups left out of the key": Variant(
        "identity.py", 'tp = f"of{topology.tp_size * parts}"', 'tp = "of all"', HEAD_GROUPS
    ),
    "head groups that overlap": Variant(
        "sglang/page_forms.py",
        "page + offset for page in pages",
        "page + offset // 2 for page in pages",
        ["test_head_groups.py::test_tp_sizes_read_each_others_heads"],
    ),
    "a page of a layout that begins a page too late": Variant(
        "sglang/page_forms.py",
        "start + index // step * layout.bytes_per_page",
        "start + (index // step + 1) * layout.bytes_per_page",
        ["test_pages.py::test_a_page_that_one_node_sets_another_gets"],
    ),
    "a set that failed reported as success": Variant(
        "sglang/mover.py",
        'results = self._judge("set", wanted, places, statuses)',
        "results = [[True] * len(pages.hashes) for pages in wanted]",
        ["test_outages.py::test_missing_socket_gives_only_misses"],
    ),
    "a page without one of its pieces reported as got": Variant(
        "sglang/outcomes.py",
        "statuses[i : i + pieces].count(Status.ok) == pieces",
        "statuses[i : i + pieces].count(Status.ok) > 0",
        ["test_partial.py::test_a_page_without_one_of_its_pieces_is_a_miss"],
    ),
    "a linker that orders bytes unlike HiCache": Variant(
        "sglang/device_forms.py",
        "if by_token:",
        "if not by_token:",
        ["test_linker_sharing.py::test_a_linker_loads_what_hicache_stored"],
    ),
    "a linker whose tags lack an attribute of the host pool": Variant(
        "sglang/host_shapes.py",
        '        "end_layer": pool.end_layer,\n',
        "",
        ["test_linker_identity.py::test_tags_of_plain_pools_are_those_of_their_host_pools"],
    ),
    "a linker that loads a page that it did not get": Variant(
        "sglang/device_pages.py",
        'if not self._move("got", self._client.batch_get, parts, results, done):',
        'if self._move("got", self._client.batch_get, parts, results, done) is None:',
        [
            "test_linker_outages.py::test_a_page_lost_after_the_lookup_ends_the_requests_of_that_pass_alone"
        ],
    ),
    "a linker that reports a layer before it is there": Variant(
        "sglang/device_pages.py",
        "                _scatter(part, blocks, layer)\n",
        "                _scatter(part, blocks, layer - 1)\n",
        ["test_linker.py::test_each_layer_has_its_bytes_when_its_wait_ends"],
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_client_fails(tmp_path: Path, name: str) -> None:
    check(VARIANTS[name], Path(__file__).parent, tmp_path)
