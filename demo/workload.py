"""Seeded random workloads: conversations of several turns, and questions about long documents.

Conversations resemble a chat service. Every conversation starts with one of a few system prompts.
Each turn sends the whole history and a new question, and the answer becomes part of the history. So
a turn's chain begins with blocks that an earlier turn, or another conversation with the same
prompt, has already set.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """One request: the blocks of its prompt in order, and the blocks that its answer adds.

    A block is a number. Equal numbers are equal blocks after equal prefixes.
    """

    chain: tuple[int, ...]
    answer: tuple[int, ...] = ()


@dataclass
class _Conversation:
    history: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Conversations:
    """The generator's parameters. The replay chooses the size of a block."""

    seed: int = 1
    live_conversations: int = 96
    """Open at a time, their turns interleaved at random: more spreads reuse out in time."""
    system_prompts: int = 4
    """Shared prompts; the n-th is chosen with weight 1/n."""
    system_prompt_blocks: int = 12
    turns_mean: float = 4.0
    """Of a conversation, geometrically distributed."""
    question_blocks_max: int = 16
    """New blocks of a turn, 1 to this, uniformly."""
    answer_blocks_max: int = 8

    def requests(self) -> Iterator[Request]:
        """An endless sequence. Equal parameters give equal requests."""
        chance = random.Random(self.seed)
        numbers = iter(range(1 << 62))
        prompts = [
            self._fresh(numbers, self.system_prompt_blocks) for _ in range(self.system_prompts)
        ]
        weights = [1 / (rank + 1) for rank in range(self.system_prompts)]

        def begin() -> _Conversation:
            return _Conversation(list(chance.choices(prompts, weights)[0]))

        live = [begin() for _ in range(self.live_conversations)]
        while True:
            place = chance.randrange(len(live))
            conversation = live[place]
            question = self._fresh(numbers, chance.randint(1, self.question_blocks_max))
            answer = self._fresh(numbers, chance.randint(1, self.answer_blocks_max))
            conversation.history += question
            yield Request(tuple(conversation.history), tuple(answer))
            conversation.history += answer
            if chance.random() < 1 / self.turns_mean:
                live[place] = begin()

    @staticmethod
    def _fresh(numbers: Iterator[int], count: int) -> list[int]:
        return [next(numbers) for _ in range(count)]


@dataclass(frozen=True)
class Documents:
    """Long documents. Each is asked about once, in order, and then again and again at random."""

    documents: int
    seed: int = 1
    document_blocks: int = 64
    question_blocks: int = 2
    answer_blocks: int = 2

    def requests(self) -> Iterator[Request]:
        """An endless sequence. Equal parameters give equal requests."""
        chance = random.Random(self.seed)
        length = self.document_blocks
        texts = [range(at * length, (at + 1) * length) for at in range(self.documents)]
        numbers = itertools.count(self.documents * length)

        def about(text: range) -> Request:
            question = tuple(itertools.islice(numbers, self.question_blocks))
            return Request((*text, *question), tuple(itertools.islice(numbers, self.answer_blocks)))

        yield from map(about, texts)
        while True:
            yield about(chance.choice(texts))
