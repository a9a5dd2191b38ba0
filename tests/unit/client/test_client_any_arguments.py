"""A call raises only the errors that docs/client.md lists, for any arguments."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.ipc_stand_in import IpcStandIn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peercache_client import Client, Region, Status

SOME_REGION = object()  # a placeholder for an open region

numbers = st.one_of(
    st.integers(-2, 5000),
    st.sampled_from([-(2**63), 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64, 2**70]),
    st.floats(),
    st.booleans(),
)
odd = st.one_of(
    st.none(), numbers, st.text(max_size=3), st.binary(max_size=9), st.just(b"k" * 5000),
    st.just("\ud800"), st.just(bytearray(8)), st.just(memoryview(b"abcd")[::2]), st.just(object()),
    st.just(SOME_REGION), st.just({"a": 1}), st.just({"a"}), st.just(iter("ab")),
)  # fmt: skip
anything = st.one_of(odd, st.lists(odd, max_size=3), st.tuples(odd, odd))

CALLS: dict[
    str, tuple[Callable[[Client], Callable[..., Any]], int, tuple[type[Exception], ...]]
] = {
    "batch_set": (lambda c: c.batch_set, 4, ()),
    "batch_get": (lambda c: c.batch_get, 4, ()),
    "batch_set_buffers": (lambda c: c.batch_set_buffers, 2, ()),
    "batch_get_buffers": (lambda c: c.batch_get_buffers, 2, ()),
    "set": (lambda c: c.set, 2, ()),
    "get": (lambda c: c.get, 2, ()),
    "batch_exists": (lambda c: c.batch_exists, 1, ()),
    "contains": (lambda c: c.contains, 1, ()),
    "remove": (lambda c: c.remove, 1, ()),
    "pin": (lambda c: c.pin, 2, ()),
    "unpin": (lambda c: c.unpin, 1, ()),
    "alloc": (lambda c: c.alloc, 1, (OSError,)),
    "register": (lambda c: c.register, 1, (OSError,)),
    "register_memory": (lambda c: c.register_memory, 2, (OSError,)),
}
OPTIONS = ("parent", "timeout_s", "hold_s")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IpcStandIn]:
    with IpcStandIn(tmp_path_factory.mktemp("any") / "d.sock") as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def client(daemon: IpcStandIn) -> Iterator[Client]:
    with Client(daemon.path, "space") as one:
        yield one


@pytest.fixture(scope="module")
def region(client: Client) -> Region:
    return client.alloc(4096)


@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_call_with_any_arguments(
    client: Client, region: Region, name: str, data: st.DataObject
) -> None:
    of, count, more = CALLS[name]

    def real(value: Any) -> Any:
        if value is SOME_REGION:
            return region
        return [real(each) for each in value] if isinstance(value, list) else value

    arguments = [real(data.draw(anything)) for _ in range(count)]
    chosen = data.draw(st.lists(st.sampled_from(OPTIONS), max_size=1))
    options = {option: real(data.draw(odd)) for option in chosen}
    if name == "register" and isinstance(arguments[0], int):
        arguments[0] = max(arguments[0], 1 << 20)  # do not close a descriptor of the test itself
    if name == "register_memory" and isinstance(arguments[0], int):
        arguments[0] = min(arguments[0], 5000)  # do not exhaust the test's memory
    try:
        result = of(client)(*arguments, **options)
    except (TypeError, ValueError):
        return
    except more:
        return
    if isinstance(result, Region):
        result.close()


@pytest.mark.parametrize(
    ("arguments", "mention"),
    [
        (("s", "a\nb"), "control or direction character"),
        (("s", "a\x7fb"), "control or direction character"),
        (("s", "\u202egnp.exe"), "control or direction character"),
        (("s", "a\x85b"), "control or direction character"),
        (("s\0t", "n"), "zero byte"),
    ],
)
def test_client_refuses_invalid_socket_namespace_and_name_at_once(
    arguments: tuple[str, str], mention: str
) -> None:
    with pytest.raises(ValueError, match=mention):
        Client(*arguments)
    with pytest.raises(ValueError, match="control or direction character"):
        Client("s", "n", name="a\tb")


def test_a_set_of_keys_is_refused_however_large_it_is(client: Client) -> None:
    for keys in ({"a", "b"}, dict.fromkeys(map(str, range(70_000)))):
        with pytest.raises(TypeError, match="a sequence of keys"):
            client.batch_exists(keys)  # type: ignore[arg-type]


def test_without_descriptors_a_call_is_a_miss(daemon: IpcStandIn) -> None:
    client = Client(daemon.path, "space")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert client.batch_exists(["k"]) == 0
        assert client.set("k", b"page") in (Status.error, Status.no_daemon)
        with pytest.raises(OSError, match="Too many open files"):
            client.alloc(4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
