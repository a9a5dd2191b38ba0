"""What status says of removals that are not written down, and of a disk tier that was emptied."""

from peercached.disk_status import say_disk
from peercached.removals.sentences import say_removals


def test_removals_that_wait_are_an_error_with_the_reason() -> None:
    said: list[tuple[str, ...]] = []

    def say(*words: str) -> None:
        said.append(words)

    say_removals(say, {})
    say_removals(say, {"waiting": 0, "problem": ""})
    assert said == []
    say_removals(say, {"waiting": 3, "problem": "No space left on device"})
    [(severity, sentence, _)] = said
    assert severity == "error"
    assert sentence.startswith("3 removals could not be written down in state_dir: No space left")


def test_a_disk_that_began_empty_says_why() -> None:
    said: list[tuple[str, ...]] = []

    def say(*words: str) -> None:
        said.append(words)

    say_disk(say, "/disk", {"state": "on", "recovery_emptied": "state_dir is older than it"}, [])
    [(severity, sentence, _)] = said
    assert severity == "info"
    assert sentence.endswith("because state_dir is older than it.")


def test_who_refuses_sets_for_long_says_why() -> None:
    said: list[tuple[str, ...]] = []

    def say(*words: str) -> None:
        said.append(words)

    say_removals(say, {"running": 7, "running_s": 5.0})
    assert said == [], "it takes a moment"
    say_removals(say, {"running": 7, "running_s": 40.0})
    unsure = {"unsure": 7, "unsure_s": 40.0, "missing": {"a": "it went without a word"}}
    say_removals(say, {"running": 7, "running_s": 40.0, **unsure})
    ours, others = said[1][1], said[0][1]
    assert others.startswith("7 pages are being removed by other nodes since 40 s")
    assert "a: it went without a word" in ours
