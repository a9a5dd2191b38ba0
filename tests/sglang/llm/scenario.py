"""Two nodes answer prompts with and without cached KV, while parts of them die."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from harness.cluster import Cluster

from llm.engine import Answer
from llm.model import Architecture
from llm.worker import Worker

MODEL_NAME = "demo-llm"


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
    """By a worker that has one bit wrong of each batch that it gets: must differ."""

    @property
    def right(self) -> bool:
        return (
            all(each.same_tokens and each.same_logits for each in (*self.turns, *self.deaths))
            and self.flipped is not None
            and not self.flipped.same_logits
        )


class Scenario:
    """Prefill on node a, decode on node b. `say` gets progress messages."""

    def __init__(
        self, architecture: Architecture, sizes: Sizes, say: Callable[[str], object]
    ) -> None:
        self._architecture = architecture
        self._sizes = sizes
        self._say = say
        self._tokens = random.Random(architecture.seed)

    def run(self) -> Story:
        story = Story()
        with self._cluster() as cluster, ExitStack() as stack:
            self._say("starting two SGLang processes")
            prefill, decode, wrong = (
                stack.enter_context(self._worker(name, cluster, place, flip_bits=flip_bits))
                for name, place, flip_bits in (
                    ("a", 0, False),
                    ("b", 1, False),
                    ("b with a wrong bit", 1, True),
                )
            )
            for worker in (prefill, decode, wrong):
                worker.wait_ready()
            self._conversation(story, [prefill, decode])
            self._deaths(story, cluster, prefill, decode, wrong)
        return story

    def _conversation(self, story: Story, workers: list[Worker]) -> None:
        """Turns of one conversation that alternate between the nodes."""
        prompt = self._text(self._sizes.first_prompt)
        for turn in range(self._sizes.turns):
            self._say(f"turn {turn + 1} of {self._sizes.turns}")
            compared = self._compare(f"turn {turn + 1}", workers[turn % 2], prompt)
            story.turns.append(compared)
            prompt = prompt + compared.reused.tokens + self._text(self._sizes.each_turn)

    def _deaths(
        self, story: Story, cluster: Cluster, prefill: Worker, decode: Worker, wrong: Worker
    ) -> None:
        prompts = [self._text(self._sizes.handed_over) for _ in range(3)]
        self._say("node a prefills three prompts")
        for prompt in prompts:
            prefill.answer(prompt, 1)
        self._say("node b decodes the first")
        story.deaths.append(self._compare("handed over", decode, prompts[0]))
        prefill.kill()
        self._say("node a's process is killed; node b decodes the second")
        story.deaths.append(self._compare("prefill process killed", decode, prompts[1]))
        story.flipped = self._compare("one bit flipped", wrong, prompts[1])
        cluster[0].kill()
        self._say("node a's daemon is killed; node b decodes the third")
        story.deaths.append(self._compare("its daemon killed, too", decode, prompts[2]))

    def _compare(self, what: str, worker: Worker, prompt: list[int]) -> Comparison:
        return Comparison(
            what,
            worker.name,
            len(prompt),
            reused=worker.answer(prompt, self._sizes.answer),
            computed=worker.answer(prompt, self._sizes.answer, reuse=False),
        )

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
        self._say("starting two daemons")
        with Cluster(2, options=options) as cluster:
            cluster.start()
            yield cluster

    def _worker(self, name: str, cluster: Cluster, place: int, *, flip_bits: bool) -> Worker:
        return Worker(
            name,
            cluster[place].socket_path,
            self._architecture,
            pool_tokens=self._sizes.pool,
            model_name=MODEL_NAME,
            flip_bits=flip_bits,
        )
