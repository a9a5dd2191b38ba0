"""The report at the end of a drain."""

from peercached.peer.handover.report import Progress


def progress(pages: int, offered: int, handed: int, too_large: int = 0) -> Progress:
    made = Progress.begun({"keys": pages, "payload_bytes": pages}, 1 << 40)
    made.offered, made.handed_pages, made.too_large = offered, handed, too_large
    made.end({})
    return made


def test_complete_drain_reports_all_pages_handed_over() -> None:
    assert progress(5, 5, 5).outcome == "5 of 5 pages were handed to peers"


def test_report_separates_oversized_pages_from_pages_beyond_the_budget() -> None:
    made = progress(9, 5, 5, too_large=3)
    assert made.complete
    assert made.outcome == (
        "5 of 9 pages were handed to peers, 3 are larger than 64 MiB and stay; "
        "1 were beyond the budget"
    )


def test_report_names_oversized_pages_beside_pages_not_taken() -> None:
    made = progress(4, 3, 1, too_large=1)
    assert not made.complete
    assert "1 are larger than 64 MiB and stay" in made.outcome
