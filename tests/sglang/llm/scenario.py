"""Two nodes answer prompts with and without cached KV, while parts of them die."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from harness.cluster import Cluster

from llm.engine import Answer
from llm.host_memory import kv_bytes
from llm.model import Architecture
from llm.node import Kind
from llm.worker import Worker

MODEL_NAME = "demo-llm"

Compute = Callable[[list[int], int], Answer]
"""Answers a prompt with this many tokens, without any KV of another request."""


@dataclass(frozen=True)
class Sizes:
    """Sizes in tokens. Pools have room for all prompts and answers."""

    first_prompt: int
    each_turn: int
    turns: int
    handed_over: int
    answer: int

    @property
    def pool(self) -> int:
        conversation = self.first_prompt + self.turns * (self.each_turn + self.answer)
        return 2 * (2 * conversation + 4 * (self.handed_over + self.answer))


@dataclass(frozen=True)
class Comparison:
    """One prompt, answered by one worker with peercached's KV and again without it."""

    what: str
    worker: str
    prompt_tokens: int
    reused: Answer
    computed: Answer

    @property
    def same_tokens(self) -> bool:
        return self.reused.tokens == self.computed.tokens

    @property
    def same_logits(self) -> bool:
        """Bit for bit, in every step."""
        return self.reused.logits_sha256 == self.computed.logits_sha256


@dataclass
class Story:
    turns: list[Comparison] = field(default_factory=list)
    deaths: list[Comparison] = field(default_factory=list)
    """Handed over between living processes, then after the process has been killed, then after
    its daemon has been, too."""
    flipped: Comparison | None = None
    """With one wrong bit in the KV that came from the daemon: must differ."""
    host_kv_bytes: list[int] = field(default_factory=list)
    """Host memory for KV of each node's worker, measured after the turns."""
    pool_bytes: int = 0
    """Of each daemon."""
    stored_bytes: int = 0
    """Of the turns' pages in the pools of both daemons."""

    @property
    def compared(self) -> list[Comparison]:
        """All that must be right."""
        return [*self.turns, *self.deaths]

    @property
    def fetched_tokens(self) -> int:
        """That came from the other node."""
        return sum(each.reused.fetched_tokens for each in self.compared)

    @property
    def reused_tokens(self) -> int:
        return sum(each.reused.reused_tokens for each in self.compared)

    @property
    def reused_s(self) -> float:
        """The time to the first token of turns 2 and later. Turn 1 can reuse nothing."""
        return sum(each.reused.first_token_s for each in self.turns[1:])

    @property
    def computed_s(self) -> float:
        """The same without reuse."""
        return sum(each.computed.first_token_s for each in self.turns[1:])

    @property
    def wrong_tokens(self) -> int:
        return sum(
            one != other
            for each in self.compared
            for one, other in zip(each.reused.tokens, each.computed.tokens, strict=True)
        )

    @property
    def wrong_logits(self) -> int:
        """The number of answers with logits that differ in any bit."""
        return sum(not each.same_logits for each in self.compared)

    @property
    def flip_was_seen(self) -> bool:
        return self.flipped is not None and not self.flipped.same_logits

    @property
    def right(self) -> bool:
        return self.wrong_tokens == self.wrong_logits == 0 and self.flip_was_seen


class Scenario:
    """Prefill on node a, decode on node b."""

    def __init__(
        self,
        architecture: Architecture,
        sizes: Sizes,
        say: Callable[[str], object],
        *,
        kinds: Sequence[Kind] = ("HiCache", "HiCache"),
        compute: Compute | None = None,
    ) -> None:
        """`say` gets progress messages. `kinds`: of nodes a and b. `compute`: gives the right
        answers; default: the worker that answers computes them, too."""
        self._architecture = architecture
        self._sizes = sizes
        self._say = say
        self._kinds = kinds
        self._compute = compute
        self._tokens = random.Random(architecture.seed)

    def run(self) -> Story:
        story = Story()
        with self._cluster() as cluster, ExitStack() as stack:
            self._say("starting two SGLang processes")
            prefill, decode = workers = [
                stack.enter_context(self._worker(name, cluster, place))
                for place, name in enumerate("ab")
            ]
            for worker in workers:
                worker.wait_ready()
            before = _stored_bytes(cluster)  # of the prompts that warm the workers up
            self._conversation(story, workers)
            story.host_kv_bytes = [worker.host_kv_bytes() for worker in workers]
            story.pool_bytes = kv_bytes(cluster[0].pid, name="peercached-pool")
            story.stored_bytes = _stored_bytes(cluster) - before
            self._deaths(story, cluster, prefill, decode)
        return story

    def _conversation(self, story: Story, workers: list[Worker]) -> None:
        """Turns of one conversation that alternate between the nodes."""
        prompt = self._text(self._sizes.first_prompt)
        for turn in range(self._sizes.turns):
            self._say(f"turn {turn + 1} of {self._sizes.turns}")
            compared = self._compare(f"turn {turn + 1}", workers[turn % 2], prompt)
            story.turns.append(compared)
            prompt = prompt + compared.reused.tokens + self._text(self._sizes.each_turn)

    def _deaths(self, story: Story, cluster: Cluster, prefill: Worker, decode: Worker) -> None:
        prompts = [self._text(self._sizes.handed_over) for _ in range(4)]
        self._say("node a prefills four prompts")
        for prompt in prompts:
            prefill.answer(prompt, 1)
        self._say("node b decodes the first")
        story.deaths.append(self._compare("handed over", decode, prompts[0]))
        prefill.kill()
        self._say("node a's process is killed; node b decodes the second")
        story.deaths.append(self._compare("prefill process killed", decode, prompts[1]))
        self._say("node b decodes the third with a wrong bit")
        story.flipped = self._compare("one bit flipped", decode, prompts[2], flip_a_bit=True)
        cluster[0].kill()
        self._say("node a's daemon is killed; node b decodes the fourth")
        story.deaths.append(self._compare("its daemon killed, too", decode, prompts[3]))

    def _compare(
        self, what: str, worker: Worker, prompt: list[int], *, flip_a_bit: bool = False
    ) -> Comparison:
        count = self._sizes.answer
        reused = worker.answer(prompt, count, flip_a_bit=flip_a_bit)
        if self._compute is not None:
            computed = self._compute(prompt, count)
        else:
            computed = worker.answer(prompt, count, reuse=False)
        return Comparison(what, worker.name, len(prompt), reused, computed)

    def _text(self, count: int) -> list[int]:
        return [self._tokens.randrange(self._architecture.vocabulary - 1) for _ in range(count)]

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        pool_bytes = 2 * self._sizes.pool * self._architecture.kv_bytes_per_token
        options: dict[str, str | int | float] = {
            "pool-size": max(pool_bytes, 64 << 20),
            "heartbeat-interval-s": 0.25,
            "member-ttl-s": 1.5,
        }
        if "direct linker" in self._kinds:
            options["gpu"] = "stand-in"
        self._say("starting two daemons")
        with Cluster(2, options=options) as cluster:
            cluster.start()
            yield cluster

    def _worker(self, name: str, cluster: Cluster, place: int) -> Worker:
        return Worker(
            name,
            cluster[place].socket_path,
            self._architecture,
            kind=self._kinds[place],
            pool_tokens=self._sizes.pool,
            model_name=MODEL_NAME,
        )


def _stored_bytes(cluster: Cluster) -> int:
    """Of pages in the pools of all daemons."""
    return sum(daemon.status()["pool"]["payload_bytes"] for daemon in cluster.daemons)
