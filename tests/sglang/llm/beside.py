"""The same story for several kinds of nodes, beside a worker that never reuses KV."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llm.model import Architecture
from llm.node import Kind
from llm.scenario import MODEL_NAME, Scenario, Sizes, Story
from llm.worker import Worker

# Of nodes a and b. In the last pair a conversation alternates between the kinds, which share pages.
PAIRS: Mapping[str, tuple[Kind, Kind]] = {
    "HiCache": ("HiCache", "HiCache"),
    "linker": ("linker", "linker"),
    "direct linker": ("direct linker", "direct linker"),
    "HiCache and linker": ("HiCache", "linker"),
}


@dataclass
class Beside:
    stories: dict[str, Story] = field(default_factory=dict)
    """By the names of PAIRS."""
    host_kv_bytes: int = 0
    """Host memory for KV of the worker that never reuses any."""

    @property
    def right(self) -> bool:
        return all(story.right for story in self.stories.values())


def run_beside(
    architecture: Architecture,
    sizes: Sizes,
    say: Callable[[str], object],
    pairs: Mapping[str, tuple[Kind, Kind]] = PAIRS,
) -> Beside:
    """The prompts are the same for all pairs. The worker without reuse answers each beside every
    pair, because the speed of a shared machine changes."""
    told = Beside()
    no_store = Worker(
        "none",
        Path("/nonexistent"),
        architecture,
        kind="none",
        pool_tokens=sizes.pool,
        model_name=MODEL_NAME,
    )
    with no_store:
        no_store.wait_ready()
        for name, kinds in pairs.items():

            def say_of(text: str, name: str = name) -> None:
                say(f"{name}: {text}")

            told.stories[name] = Scenario(
                architecture, sizes, say_of, kinds=kinds, compute=no_store.answer
            ).run()
        told.host_kv_bytes = no_store.host_kv_bytes()
    return told
