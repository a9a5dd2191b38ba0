"""Each call that membership makes, against a real etcd."""

import asyncio
from collections.abc import Awaitable, Callable

from harness.etcd import Etcd

from peercached.peer.membership.etcd.client import EtcdClient


def asked(etcd: Etcd, claim: Callable[[EtcdClient], Awaitable[None]]) -> None:
    async def ask() -> None:
        client = EtcdClient([etcd.endpoint], None, 5.0)
        try:
            await claim(client)
        finally:
            await client.close()

    asyncio.run(ask())


def test_a_key_is_put_only_if_it_was_not_put_since(etcd: Etcd) -> None:
    async def claim(client: EtcdClient) -> None:
        assert await client.put_if(b"/p/a", b"1", 0, 0)
        assert not await client.put_if(b"/p/a", b"2", 0, 0)
        [found], revision = await client.read(b"/p/a")
        await client.put(b"/p/b", b"beside it")
        assert await client.put_if(b"/p/a", b"2", 0, found.mod_revision)
        assert not await client.put_if(b"/p/a", b"3", 0, revision)

    asked(etcd, claim)


def test_put_if_fails_after_a_newer_put_under_its_prefix(etcd: Etcd) -> None:
    async def claim(client: EtcdClient) -> None:
        assert await client.put_if(b"/p/", b"1", 0, 0, b"/p/")
        _, revision = await client.read(b"/p/")
        await client.put(b"/q/", b"elsewhere")
        assert await client.put_if(b"/p/", b"2", 0, revision, b"/p/")
        _, revision = await client.read(b"/p/")
        await client.put(b"/p/b", b"below it")
        assert not await client.put_if(b"/p/", b"3", 0, revision, b"/p/")

    asked(etcd, claim)
