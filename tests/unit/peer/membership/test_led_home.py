"""A view for an earlier process of this node, at an address that is now our own."""

from __future__ import annotations

import asyncio
import logging
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.membership import Heartbeat, Member, Membership, NodeAddress, Timing
from peercached.membership.messages import PushView
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.membership.embedded.heartbeats import Heartbeats

US = NodeAddress("a", 2, "a", 1, 2)


class Link:
    """Leads to this very process."""

    identity = US

    async def call_within(self, *_: object) -> Any:
        return SimpleNamespace(verdict=0, view=None)

    def connect_anew(self) -> None:
        pass


def test_a_view_that_leads_home_is_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    module = "peercached.peer.membership.embedded.calls.member_wire"
    monkeypatch.setattr(f"{module}.answer_of", lambda reply: None)
    monkeypatch.setattr(f"{module}.heartbeat_message", lambda *_: None)

    async def story() -> None:
        timing = Timing(0.3, 1.2)
        membership = Membership(US, ["a:1"], 0, timing, 0.0, random.Random(1))
        calls = MemberCalls(
            cast(Any, SimpleNamespace(link=lambda _: Link())),
            cast(Any, SimpleNamespace(some=list)),
            1.0,
        )
        nothing = cast(Any, None)
        beats = Heartbeats(membership, timing, calls, nothing, nothing)
        beats.act([PushView(NodeAddress("a", 1, "a", 1, 2), Heartbeat(Member(US), 0))])
        await asyncio.gather(*beats._tasks._running)

    asyncio.run(story())
    assert "not pushed: a:1" in caplog.text
