"""The health findings for unsaved removals, and for a disk tier that was emptied."""

from collections.abc import Mapping
from typing import Any

from harness.said import said

from peercached.data_plane.disk import say_disk
from peercached.health.recent_growth import Lately
from peercached.removals.sentences import say_removals


def of_removals(removals: Mapping[str, Any]) -> list[dict[str, str]]:
    return said(lambda say: say_removals(say, removals, "own"))


def test_removals_that_wait_are_an_error_with_the_reason() -> None:
    assert of_removals({}) == of_removals({"waiting": 0, "problem": ""}) == []
    [found] = of_removals({"waiting": 3, "problem": "No space left on device"})
    assert (found["code"], found["severity"]) == ("removals_not_kept", "error")
    assert found["sentence"].startswith("3 removals cannot be written to state_dir: No space left")


def test_a_disk_that_began_empty_says_why() -> None:
    disk = {"state": "on", "recovery_emptied": "state_dir is older than it"}
    [found] = said(lambda say: say_disk(say, "/disk", disk, [], Lately()))
    assert (found["code"], found["severity"]) == ("disk_emptied", "info")
    assert found["sentence"].endswith("because state_dir is older than it.")


def test_long_set_refusals_are_reported_with_the_reason() -> None:
    assert of_removals({"running": 7, "running_s": 5.0}) == [], "it takes a moment"
    [others] = of_removals({"running": 7, "running_s": 40.0})
    assert others["sentence"].startswith("Other nodes have been removing 7 pages for 40 s")
    unsure = {"unsure": 7, "unsure_s": 40.0, "missing": {"a": "it vanished without a goodbye"}}
    [ours] = of_removals({"running": 7, "running_s": 40.0, **unsure})
    assert "a: it vanished without a goodbye" in ours["sentence"]
    assert "forget NODE" in ours["remedy"]


def test_a_node_that_is_outside_is_not_one_that_was_not_reached() -> None:
    missing = {"own": "it is not a member yet"}
    [found] = of_removals({"unsure": 7, "unsure_s": 0.4, "missing": missing})
    assert found["sentence"] == (
        "The removal of 7 pages is unconfirmed: this node: it is not a member yet. "
        "Until this node can go on, the pages cannot be set."
    )
    assert "forget" not in found["remedy"]
    missing["a"] = "it vanished without a goodbye"
    [found] = of_removals({"unsure": 7, "unsure_s": 40.0, "missing": missing})
    assert "this node: it is not a member yet; a: it vanished" in found["sentence"]
    assert "forget NODE" in found["remedy"]


def test_the_object_store_is_no_node_that_could_be_forgotten() -> None:
    missing = {"the object store": "it has not answered yet"}
    [found] = of_removals({"unsure": 7, "unsure_s": 4.0, "missing": missing})
    assert found["sentence"].endswith(
        "the object store: it has not answered yet. "
        "Until it confirms, the pages may still be found there, and cannot be set."
    )
    assert "cold_store" in found["remedy"] and "forget" not in found["remedy"]
    missing["a"] = "it vanished without a goodbye"
    [found] = of_removals({"unsure": 7, "unsure_s": 4.0, "missing": missing})
    assert "cold_store" in found["remedy"] and "forget NODE" in found["remedy"]
