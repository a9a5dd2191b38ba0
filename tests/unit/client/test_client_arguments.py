"""Wrong arguments raise an error that names the value, even without a daemon."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ipc_stand_in import EXISTS, IpcStandIn

from peercache_client import Client, Region
from peercache_client.forecast import Judged


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "nobody.sock", "space")


@pytest.fixture
def region(client: Client) -> Region:
    return client.alloc(4096)


Call = Callable[[Client, Region], Any]


@pytest.mark.parametrize(
    ("call", "mention"),
    [
        (lambda c, r: c.batch_set(["a", "b"], r, [0], 1), "2 keys and 1 offsets"),
        (lambda c, r: c.batch_set(["a"], r, [0], [1, 2]), "1 keys and 2 lengths"),
        (lambda c, r: c.batch_set(["a"], [r, r], [0], 1), "1 keys and 2 regions"),
        (lambda c, r: c.batch_get(["a"], r, [4090], 7), "4090 to 4097 of a region of 4096"),
        (lambda c, r: c.batch_get(["a", "b"], r, [0, 4096], 1), "page 1 is bytes 4096"),
        (lambda c, r: c.batch_get(["a"], [r], [2**64 - 1], 1), "18446744073709551615"),
        (lambda c, r: c.batch_get(["a"], r, [0], 0), "length 0"),
        (lambda c, r: c.batch_get(["a"], r, [-1], 1), "-1"),
        (lambda c, r: c.batch_get(["a"], r, [0], 1 << 40), str(1 << 40)),
        (lambda c, r: c.batch_set(["a"], r, [0], 1, parent=""), "parent has 0 bytes"),
        (lambda c, r: c.batch_exists(["a"], parent="p" * 5000), "parent has 5000 bytes"),
        (lambda c, r: c.batch_exists(["a"], timeout_s=0), "timeout_s is 0"),
        (lambda c, r: c.batch_exists(["a"], timeout_s=-3), "timeout_s is -3"),
        (lambda c, r: c.batch_get(["a"], r, [0], 1, give_up_s=math.nan), "give_up_s is nan"),
        (lambda c, r: c.batch_get_buffers(["a"], [bytearray(1)], give_up_s=0), "give_up_s is 0"),
        (lambda c, r: c.get("a", 1, give_up_s=-1), "give_up_s is -1"),
        (lambda c, r: c.get("a", give_up_s=math.inf), "give_up_s is inf"),
        (lambda c, r: c.forecast(["a"], judged=Judged(-1)), "judged.cut_pages is -1"),
        (lambda c, r: c.forecast([], judged=Judged(0, -2)), "judged.given_up_pages is -2"),
        (lambda c, r: c.forecast(["a"], judged=Judged(cut_s=-0.5)), "judged.cut_s is -0.5"),
        (lambda c, r: c.forecast(["a"], judged=Judged(cut_s=math.nan)), "judged.cut_s is nan"),
        (lambda c, r: c.forecast(["a"], judged=Judged(computed_s=math.inf)), "_s is inf"),
        (lambda c, r: c.get("a", 0), "length is 0"),
        (lambda c, r: c.set("a", b""), "has 0 bytes"),
        (lambda c, r: c.batch_set_buffers(["a"], []), "1 keys and 0 buffers"),
        (lambda c, r: c.batch_get_buffers(["a"], [b"readonly"]), "read-only"),
        (lambda c, r: c.batch_set_buffers(["a"], [memoryview(b"abcd")[::2]]), "contiguous"),
        (lambda c, r: c.alloc(0), "size is 0"),
        (lambda c, r: c.register(bytearray(10)), "private"),
        (lambda c, r: c.register(b""), "empty"),
        (lambda c, r: c.register_memory(0, 10), "no memory"),
    ],
)
def test_a_wrong_value_is_named(client: Client, region: Region, call: Call, mention: str) -> None:
    with pytest.raises(ValueError, match=mention.replace("(", r"\(")):
        call(client, region)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, r: c.batch_exists("one string"),
        lambda c, r: c.batch_exists(b"one key"),
        lambda c, r: c.batch_exists(["a", 5]),
        lambda c, r: c.batch_exists([None]),
        lambda c, r: c.batch_exists([bytearray(b"a")]),
        lambda c, r: c.batch_set(["a"], r, ["0"], 1),
        lambda c, r: c.batch_set(["a"], r, [0.5], 1),
        lambda c, r: c.batch_set(["a"], r, [0], 1, parent=7),
        lambda c, r: c.batch_get(["a"], r, [0], 1, give_up_s="1"),
        lambda c, r: c.forecast(["a"], judged=5),
        lambda c, r: c.forecast(["a"], judged=(1, 2, 3.0, 4.0)),
        lambda c, r: c.forecast(["a"], judged=Judged(1.5)),  # type: ignore[arg-type]
        lambda c, r: c.forecast(["a"], judged=Judged(cut_s="1")),  # type: ignore[arg-type]
        lambda c, r: c.batch_set(["a"], None, [0], 1),
        lambda c, r: c.batch_set(["a"], ["region"], [0], 1),
        lambda c, r: c.set("a", "text"),
        lambda c, r: c.alloc("10"),
        lambda c, r: c.register(3.5),
    ],
)
def test_a_wrong_type_raises_type_error(client: Client, region: Region, call: Call) -> None:
    with pytest.raises(TypeError):
        call(client, region)


def test_judgements_of_any_size_are_sent(daemon: IpcStandIn) -> None:
    with Client(daemon.path, "space") as client:
        for judged in (Judged(10**30, 10**30, 1e300, 10**400), Judged(*np.arange(4))):
            assert client.forecast(["a"], judged=judged).present == [False]
    assert len(daemon.asked(EXISTS)) == 2


def test_a_closed_region_is_refused(client: Client, region: Region) -> None:
    region.close()
    region.close()
    with pytest.raises(ValueError, match="closed"):
        client.batch_set(["a"], region, [0], 1)
    with pytest.raises(ValueError, match="closed"):
        region.view  # noqa: B018


def test_without_a_path_the_users_own_daemon_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: IpcStandIn
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "peercached").mkdir()
    (tmp_path / "peercached" / "peercached.sock").symlink_to(daemon.path)
    with Client() as client:
        assert client.ping()
        assert client.set("k", b"page")
    with Client(namespace="other") as other:
        assert other.get("k") is None


def test_construction_checks_its_arguments_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1025"):
        Client(tmp_path / "s", "n" * 1025)
    with pytest.raises(TypeError):
        Client(tmp_path / "s", b"bytes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_s is -1"):
        Client(tmp_path / "s", "n", timeout_s=-1)
    Client(tmp_path / "no such directory" / "s", "n")
