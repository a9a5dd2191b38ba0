"""A daemon that is killed in the middle of a load, beside an engine of any model."""

from typing import Any, NamedTuple

from harness.waiting import eventually

from serving.engine import Engine
from serving.prompts import NEW_TOKENS, prompt_of


class Engines(NamedTuple):
    plain: Engine  # without any connector
    a: Engine
    b: Engine
    cluster: Any


def check_that_a_killed_load_is_computed(engines: Engines) -> None:
    """The daemon of a, which has the pages, stands still, so that the load is under way."""
    a, b = engines.cluster.daemons
    prompt = prompt_of("killed", 900)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    engines.a.answer(prompt, 1)
    engines.b.load_begun.clear()
    a.freeze()
    try:
        engines.b.ask(prompt, NEW_TOKENS)
        assert engines.b.load_begun.wait(300)
        b.kill()
        answer = engines.b.receive()
    finally:
        a.thaw()
    assert answer.same_as(right)
    assert answer.cached_tokens == 0
    assert ("load", "ok") not in answer.chunks

    b.start()
    engines.cluster.wait_complete()

    def loads_again() -> bool:
        engines.b.forget()
        again = engines.b.answer(prompt, NEW_TOKENS)
        assert again.same_as(right)
        return again.cached_tokens > 0

    eventually(loads_again, 60, "pages after the restart of the daemon")
