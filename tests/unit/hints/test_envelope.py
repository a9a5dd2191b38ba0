"""Envelopes of hints are taken apart within bounds, whatever they contain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peercached.hints.envelope import (
    ACTIONS_MAX,
    ENVELOPE_BYTES_MAX,
    IGNORED,
    KEYS_MAX,
    REFUSED,
    Action,
    Outcome,
    parse,
)


def packed(*actions: Any) -> bytes:
    document = {"protocol_version": "1.0", "message_id": "m", "actions": list(actions)}
    return json.dumps(document).encode()


def action(kind: str = "kv.fetch", version: str = "1.0", **payload: Any) -> dict[str, Any]:
    return {
        "action_id": "a",
        "action_type": kind,
        "action_version": version,
        "payload": {"namespace": "n", "keys": ["k"], **payload},
    }


@pytest.mark.parametrize("kind", ["kv.fetch", "fetch", "kv.fetch@1.0"])
def test_action_has_its_keys_under_each_form_of_its_name(kind: str) -> None:
    assert parse(packed(action(kind))) == [Action("a", kind, "fetch", "n", [b"k"])]


def test_keys_that_are_no_text_are_given_in_hexadecimal() -> None:
    one = action()
    del one["payload"]["keys"]
    one["payload"]["keys_hex"] = ["00ff"]
    (found,) = parse(packed(one))
    assert isinstance(found, Action) and found.keys == [b"\x00\xff"]


def test_each_action_gets_what_it_needs() -> None:
    found = parse(
        packed(
            action("kv.retain", seconds=2),
            action("kv.prefetch", node="b"),
            action("kv.demote", to="disk"),
            action("kv.demote"),
        )
    )
    needs = [(one.seconds, one.node, one.to) for one in found if isinstance(one, Action)]
    assert needs == [(2.0, "", ""), (0.0, "b", ""), (0.0, "", "disk"), (0.0, "", "first_to_go")]


@pytest.mark.parametrize(("kind", "version"), [("kv.fly", "1.0"), ("kv.fetch", "2.0"), ("a", "b")])
def test_unknown_action_is_ignored(kind: str, version: str) -> None:
    (found,) = parse(packed(action(kind, version)))
    assert isinstance(found, Outcome) and (found.outcome, found.kind) == (IGNORED, "unknown")


def test_worker_speaks_for_its_own_namespace_alone() -> None:
    own, foreign = action(), action(namespace="theirs")
    del own["payload"]["namespace"]
    found = parse(packed(own, foreign), "mine")
    assert isinstance(found[0], Action) and found[0].namespace == "mine"
    assert isinstance(found[1], Outcome) and found[1].outcome == REFUSED


def test_action_without_keys_is_about_the_pages_of_its_request() -> None:
    digests = [bytes([number]) * 16 for number in range(3)]
    one = action()
    del one["payload"]["keys"]
    (found,) = parse(packed(one), "n", digests)
    assert isinstance(found, Action) and (found.keys, found.digests) == ([], digests)
    (longer,) = parse(packed(one), "n", digests * KEYS_MAX)
    assert isinstance(longer, Action) and len(longer.digests) == KEYS_MAX
    (none,) = parse(packed(one), "n")
    assert isinstance(none, Outcome) and "it names no pages" in none.why


def test_bounds_hold_exactly() -> None:
    assert len(parse(packed(*[action()] * ACTIONS_MAX))) == ACTIONS_MAX
    with pytest.raises(ValueError, match="65 actions in an envelope: 64 are the limit"):
        parse(packed(*[action()] * (ACTIONS_MAX + 1)))
    (found,) = parse(packed(action(keys=["k"] * KEYS_MAX)))
    assert isinstance(found, Action)
    (found,) = parse(packed(action(keys=["k"] * (KEYS_MAX + 1))))
    assert isinstance(found, Outcome) and "4097 keys" in found.why
    body = packed()
    assert parse(body + b" " * (ENVELOPE_BYTES_MAX - len(body))) == []
    with pytest.raises(ValueError, match="262145 bytes: 262144 are the limit"):
        parse(body + b" " * (ENVELOPE_BYTES_MAX - len(body) + 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(
    st.sampled_from(["namespace", "keys", "keys_hex", "seconds", "node", "to", "more"]),
    json_values | st.lists(st.text(max_size=3), max_size=3),
)
actions = st.fixed_dictionaries(
    {
        "action_id": st.just("a") | json_values,
        "action_type": st.sampled_from(["kv.fetch", "kv.retain", "kv.demote", "share"]),
        "action_version": st.just("1.0") | json_values,
        "payload": payloads | json_values,
    }
)


@given(st.lists(actions | json_values, max_size=3), st.sampled_from(["", "mine"]))
def test_any_envelope_is_understood_or_refused(given_actions: list[Any], namespace: str) -> None:
    try:
        found = parse(packed(*given_actions), namespace)
    except ValueError as error:
        assert str(error)
        return
    assert len(found) == len(given_actions)
    for one in found:
        if isinstance(one, Action):
            assert one.namespace and all(one.keys) and not (namespace and one.namespace != "mine")
        else:
            assert one.why
