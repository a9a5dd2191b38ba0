"""The requests that the demo replays, generated or from a trace."""

import gzip
import json
from itertools import islice, pairwise
from pathlib import Path

import pytest

from demo.trace import read_trace
from demo.workload import Conversations, Documents, Request
from peercached.sizing.trace import TraceError


def test_the_same_seed_makes_the_same_requests() -> None:
    first = list(islice(Conversations(seed=3).requests(), 200))
    assert first == list(islice(Conversations(seed=3).requests(), 200))
    assert first != list(islice(Conversations(seed=4).requests(), 200))
    asked = list(islice(Documents(20, seed=3).requests(), 200))
    assert asked == list(islice(Documents(20, seed=3).requests(), 200))
    texts = [request.chain[:64] for request in asked]
    assert len(set(texts[:20])) == 20, "about each document once"
    assert set(texts[20:]) <= set(texts[:20]), "and then again"


def test_equal_blocks_have_equal_prefixes() -> None:
    for workload in (Conversations(), Documents(20)):
        before: dict[int, tuple[int, ...]] = {}
        for request in islice(workload.requests(), 500):
            for place, block in enumerate(request.chain):
                assert before.setdefault(block, request.chain[:place]) == request.chain[:place]


def test_a_turn_continues_the_prompt_and_answer_of_the_turn_before() -> None:
    one_at_a_time = Conversations(live_conversations=1, turns_mean=1e9)
    turns = list(islice(one_at_a_time.requests(), 10))
    for earlier, later in pairwise(turns):
        history = earlier.chain + earlier.answer
        assert later.chain[: len(history)] == history
        assert len(later.chain) > len(history)


def test_conversations_share_system_prompts() -> None:
    parameters = Conversations(system_prompts=2, system_prompt_blocks=5)
    starts = {request.chain[:5] for request in islice(parameters.requests(), 300)}
    assert len(starts) == 2


TRACE_LINES = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 27, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]},
]


def test_a_trace_is_read_plain_or_gzipped(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(line) for line in TRACE_LINES)
    plain, packed = tmp_path / "trace.jsonl", tmp_path / "trace.jsonl.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    expected = [Request((0, 1, 2)), Request((0, 7))]
    assert list(read_trace(plain)) == expected
    assert list(read_trace(packed)) == expected


@pytest.mark.parametrize(
    "line", ["not json", "[]", "{}", '{"hash_ids": []}', '{"hash_ids": ["a"]}', '{"hash_ids": 3}']
)
def test_malformed_trace_line_is_reported_by_number(tmp_path: Path, line: str) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps(TRACE_LINES[0]) + "\n" + line + "\n")
    with pytest.raises(TraceError, match=r"trace.jsonl, line 2: .*hash_ids"):
        list(read_trace(trace))
