"""The page about tested releases."""

from engines import matrix
from engines.matrix import Result


def test_the_page_has_the_recorded_results() -> None:
    assert matrix.PAGE.read_text() == matrix.page(matrix.read())


def test_a_failed_test_and_a_mixed_environment_are_named() -> None:
    good = Result("2026-01-02", 7, 1, ())
    bad = Result("2026-01-03", 5, 0, ("test_a::test_b",), "its Python with the compiled code of 1")
    said = matrix.page({"vllm": {"1": good, "2": bad}}).splitlines()
    assert said[-5:] == [
        "| vLLM | 2 | 2026-01-03 | 5 | 1 | 0 |",
        "| vLLM | 1 | 2026-01-02 | 7 | 0 | 1 |",
        "",
        "- vLLM 2: its Python with the compiled code of 1.",
        "- vLLM 2 fails `test_a::test_b`.",
    ]


def test_the_newest_pin_is_among_the_releases() -> None:
    for engine, releases in matrix.RELEASES.items():
        assert matrix.pinned(engine) in releases
