"""The envelope of hints, as vLLM and SGLang have it on a request:

    {"protocol_version": "1.0", "message_id": "m1", "actions": [
        {"action_id": "a1", "action_type": "kv.fetch", "action_version": "1.0", "payload": {...}}]}

parse() bounds it and takes it apart. A malformed envelope is refused as a whole. An action that
this release does not know is ignored, and a malformed one is refused by itself: the others are
done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ENVELOPE_BYTES_MAX = 256 << 10
ACTIONS_MAX = 64
KEYS_MAX = 4096
KEY_BYTES_MAX = 4096  # kKeyBytesMax in native/common/types.h
NAMESPACE_BYTES_MAX = 1024
SECONDS_MAX = 3600  # as of pins
_TEXT_MAX = 256  # characters of an id, a type, a version or a node
_PREFIX = "kv."
_VERSIONS = frozenset({"1", "1.0"})
_WANTED = (
    'an envelope like {"protocol_version": "1.0", "message_id": "m1", "actions": [{"action_id": '
    '"a1", "action_type": "kv.fetch", "action_version": "1.0", "payload": {...}}]}'
)

# What an action needs besides its pages.
SECONDS, NODE, TO = "seconds", "node", "to"
FETCH, PREFETCH, RETAIN, PIN, DEMOTE, SHARE = (
    "fetch",
    "prefetch",
    "retain",
    "pin",
    "demote",
    "share",
)
KINDS: Mapping[str, str] = {
    FETCH: "",
    PREFETCH: NODE,
    RETAIN: SECONDS,
    PIN: SECONDS,
    DEMOTE: TO,
    SHARE: NODE,
}
DISK, FIRST_TO_GO = "disk", "first_to_go"

ACCEPTED, CLIPPED, REFUSED, MISSING, IGNORED = (
    *("accepted", "clipped", "refused"),
    *("missing", "ignored"),
)
OUTCOMES = (ACCEPTED, CLIPPED, REFUSED, MISSING, IGNORED)
UNKNOWN = "unknown"  # the kind of an action that this release does not know


@dataclass(slots=True)
class Outcome:
    """The outcome of an action. `why`: for people, with the value and the limit."""

    action_id: str
    action_type: str
    outcome: str
    pages: int = 0
    bytes: int = 0
    why: str = ""
    kind: str = field(default=UNKNOWN, repr=False)  # of the counters; no part of the answer

    def document(self) -> dict[str, Any]:
        return {
            "action_id": self.action_id,
            "action_type": self.action_type,
            "outcome": self.outcome,
            "pages": self.pages,
            "bytes": self.bytes,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Action:
    """One action that this release knows. KINDS says which of the last fields count."""

    action_id: str
    action_type: str
    kind: str
    namespace: str
    keys: Sequence[bytes] = ()
    digests: Sequence[bytes] = ()  # of the request's own pages, instead of keys
    seconds: float = 0.0
    node: str = ""
    to: str = ""

    def outcome(self, outcome: str, why: str = "", pages: int = 0, bytes_: int = 0) -> Outcome:
        return Outcome(self.action_id, self.action_type, outcome, pages, bytes_, why, self.kind)


def parse(
    body: bytes, namespace: str = "", digests: Sequence[bytes] = ()
) -> list[Action | Outcome]:
    """The actions, in order; of those that are not done, their outcomes.

    `namespace`: of the worker that sends the envelope. Its actions may name no other one. Empty:
    each action names its own. `digests`: of the request that the envelope came with, for actions
    without keys. Raises ValueError if the envelope is malformed, or above the bounds."""
    if len(body) > ENVELOPE_BYTES_MAX:
        raise ValueError(
            f"an envelope of {len(body)} bytes: {ENVELOPE_BYTES_MAX} are the limit, send several"
        )
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the envelope is not JSON ({error}): send {_WANTED}") from error
    _check_texts(envelope)
    if not isinstance(envelope, dict):
        raise ValueError(f"the envelope is a {type(envelope).__name__}: send {_WANTED}")
    if "protocol_version" not in envelope:
        raise ValueError("protocol_version is missing: this daemon knows 1.0")
    version = envelope["protocol_version"]
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise ValueError(f"protocol_version is {version!r:.80}: this daemon knows 1.0")
    if "actions" not in envelope:
        raise ValueError(f"actions is missing: send {_WANTED}")
    actions = envelope["actions"]
    if not isinstance(actions, list):
        raise ValueError(f"actions is a {type(actions).__name__}: send {_WANTED}")
    if len(actions) > ACTIONS_MAX:
        raise ValueError(
            f"{len(actions)} actions in an envelope: {ACTIONS_MAX} are the limit, send several"
        )
    return [_parsed(place, action, namespace, digests) for place, action in enumerate(actions)]


def _check_texts(envelope: Any) -> None:
    """ValueError if a text has half of a surrogate pair: nothing can store, send or show it."""
    try:
        json.dumps(envelope, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the envelope has a text with {error.object[error.start]!r}, which is no Unicode: "
            "give such keys in keys_hex"
        ) from None


def _parsed(
    place: int, action: Any, own_namespace: str, own_digests: Sequence[bytes]
) -> Action | Outcome:
    if not isinstance(action, dict):
        raise ValueError(f"action {place} is a {type(action).__name__}: send {_WANTED}")
    action_id, action_type = (_text(action, name, place) for name in ("action_id", "action_type"))
    name, _, version = action_type.partition("@")
    version = version or _text(action, "action_version", place)
    kind = name.removeprefix(_PREFIX)
    if kind not in KINDS or version not in _VERSIONS:
        known = ", ".join(_PREFIX + each for each in KINDS)
        why = f"this daemon knows no {name} in version {version}, only {known} in 1.0"
        return Outcome(action_id, action_type, IGNORED, why=why)
    try:
        payload = action.get("payload")
        return _known(action_id, action_type, kind, payload, own_namespace, own_digests)
    except ValueError as error:
        return Outcome(action_id, action_type, REFUSED, why=str(error), kind=kind)


def _known(
    action_id: str,
    action_type: str,
    kind: str,
    payload: Any,
    own_namespace: str,
    own_digests: Sequence[bytes],
) -> Action:
    """Raises ValueError if the payload is malformed."""
    if not isinstance(payload, dict):
        raise ValueError(f"the payload is a {type(payload).__name__}: send an object")
    namespace = payload.get("namespace", own_namespace)
    if not isinstance(namespace, str) or not 0 < len(namespace.encode()) <= NAMESPACE_BYTES_MAX:
        found = (
            "missing" if namespace == "" and "namespace" not in payload else f"{namespace!r:.80}"
        )
        raise ValueError(f"namespace is {found}: name the one of the pages")
    if own_namespace and namespace != own_namespace:
        raise ValueError("a worker's hints are about its own namespace: name no other one")
    keys = _keys(payload) if payload.keys() & {"keys", "keys_hex"} else []
    # Of a longer prompt, the beginning is worth most.
    digests = () if keys else own_digests[:KEYS_MAX]
    if not keys and not digests:
        raise ValueError("it names no pages: give keys, or keys_hex for keys that are not text")
    if len(keys) > KEYS_MAX:
        raise ValueError(f"{len(keys)} keys in an action: {KEYS_MAX} are the limit, send several")
    seconds, node, to = 0.0, "", ""
    if KINDS[kind] == SECONDS:
        seconds = _seconds(payload.get("seconds"))
    elif KINDS[kind] == NODE:
        given = payload.get("node")
        if not isinstance(given, str) or not given or len(given) > _TEXT_MAX:
            found = "missing" if given is None else f"{given!r:.80}"
            raise ValueError(f"node is {found}: give the node_id that the pages should be at")
        node = given
    elif KINDS[kind] == TO:
        to = payload.get("to", FIRST_TO_GO)
        if to not in (DISK, FIRST_TO_GO):
            raise ValueError(f"to is {to!r:.80}: give {DISK} or {FIRST_TO_GO}")
    return Action(action_id, action_type, kind, namespace, keys, digests, seconds, node, to)


def _keys(payload: dict[str, Any]) -> list[bytes]:
    name = "keys" if "keys" in payload else "keys_hex"
    given = payload[name]
    if not isinstance(given, list) or set(map(type, given)) - {str}:
        raise ValueError(f"{name} is not a list of texts")
    keys = [_key(name, key) for key in given]
    wrong = next((len(key) for key in keys if not 0 < len(key) <= KEY_BYTES_MAX), None)
    if wrong is not None:
        raise ValueError(f"{name} has a key of {wrong} bytes: 1 to {KEY_BYTES_MAX} can be had")
    return keys


def _key(name: str, text: str) -> bytes:
    if name == "keys":
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        wanted = "give two hexadecimal digits for each byte"
        raise ValueError(f"{name} has {text!r:.80}: {wanted}") from None


def _seconds(given: Any) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    # Not float(): of a large integer it fails. And no comparison with NaN is true.
    if not is_number or not 0 < given <= SECONDS_MAX:
        found = "missing" if given is None else f"{given!r:.80}"
        raise ValueError(f"seconds is {found}: must be above 0 and at most {SECONDS_MAX}")
    return float(given)


def _text(action: dict[str, Any], name: str, place: int) -> str:
    found = action.get(name)
    if not isinstance(found, str) or not found or len(found) > _TEXT_MAX:
        given = "missing" if found is None else f"{found!r:.80}"
        raise ValueError(
            f"{name} of action {place} is {given}: a text of 1 to {_TEXT_MAX} characters"
        )
    return found
