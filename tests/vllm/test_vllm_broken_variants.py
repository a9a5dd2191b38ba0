"""A tier with one deliberate mistake fails the tests that guard against it."""

from pathlib import Path

import pytest
from harness.broken_client import Variant, check_in_fork

IDENTITY = ["test_vllm_namespace.py::test_engines_that_differ_never_meet"]
CERTIFIED = ["test_vllm_namespace.py::test_certified_canonical_pages_have_no_tp_size"]
CONTENT = ["test_vllm_contract.py::test_chunks_that_one_engine_computes_another_loads"]
LATE = ["test_vllm_outages.py::test_a_load_that_the_daemon_may_still_write_has_not_ended"]
RESET = ["test_vllm_outages.py::test_a_reset_waits_for_the_end_of_the_write"]
GONE = ["test_vllm_contract.py::test_a_page_that_is_gone_is_a_miss_and_the_others_count"]
SLOTS = ["test_vllm_contract.py::test_a_prompt_with_more_chunks_than_slots_goes_through_them"]

VARIANTS = {
    "nothing is wrong": Variant("identity.py", "", "", [*CONTENT, *LATE, *GONE, *SLOTS]),
    "pages go into each other's slots": Variant(
        "vllm/tier.py", "[slots[i] for i in order]", "slots", CONTENT
    ),
    "a load ends while the daemon may still write": Variant(
        "vllm/shared_slots.py", "silence_timeout_s=None", "silence_timeout_s=0.0", LATE
    ),
    "a reset does not wait for loads": Variant(
        "vllm/tier.py", "        self._loads.wait_idle()\n", "", RESET
    ),
    "a load that failed is reported as success": Variant(
        "vllm/tier.py",
        "success=len(good) == len(keys),\n"
        '            successful_keys=good if operation == "load" else None,',
        "success=True,\n            successful_keys=None,",
        GONE,
    ),
    "a chunk that cannot be loaded stays a hit": Variant(
        "vllm/tier.py", "self._lookups.mark_miss(set(keys).difference(good))", "pass", GONE
    ),
    "a chunk is loaded again and again": Variant(
        "vllm/tier.py", " or key in loaded or len(loaded) >= self._slot_count", "", SLOTS
    ),
    "the root hash left out of the namespace": Variant(
        "vllm/identity.py", '        f"root_hash={root_hash.hex()}",\n', "", IDENTITY
    ),
    "the dtype left out of the namespace": Variant(
        "vllm/identity.py", '        f"dtype={config.model.dtype}",\n', "", IDENTITY
    ),
    "the layers left out of the namespace": Variant(
        "vllm/identity.py", "{','.join(group.layer_names)}", "", IDENTITY
    ),
    "TP sizes share what vLLM calls agnostic": Variant(
        "vllm/identity.py",
        "        config.canonical_layout\n        and ",
        "        ",
        CERTIFIED,
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_tier_fails(tmp_path: Path, name: str) -> None:
    check_in_fork(VARIANTS[name], Path(__file__).parent, tmp_path)
