"""Each finding has a kind. It is left out while its cause is reported for the same subject."""

from pathlib import Path

from peercached.health import Findings, kinds
from peercached.health.document import document
from peercached.health.kinds import KINDS, SECTIONS

PAGE = Path(__file__).parents[3] / "docs/health.md"


def test_a_finding_has_the_code_and_severity_of_its_kind() -> None:
    findings = Findings()
    findings.say(kinds.RAIL_DOWN, "Rail 1 is down.", "Look at the cable.")
    assert findings.document() == [
        {
            "code": "rail_down",
            "severity": "warning",
            "sentence": "Rail 1 is down.",
            "remedy": "Look at the cable.",
        }
    ]


def test_a_consequence_is_left_out_beside_its_cause() -> None:
    findings = Findings()
    findings.say(kinds.RECORDS_WAIT, "Owner b is behind.", about="b")
    findings.say(kinds.RECORDS_WAIT, "Owner c is behind.", about="c")
    findings.say(kinds.PEER_SUSPECT, "b is suspect.", about="b")
    assert [one["sentence"] for one in findings.document()] == [
        "Owner c is behind.",
        "b is suspect.",
    ]


def test_no_two_kinds_share_a_code_and_causes_are_kinds() -> None:
    assert len(KINDS) == sum(len(section.kinds) for section in SECTIONS)
    assert all(cause in KINDS for kind in KINDS.values() for cause in kind.caused_by)


def test_the_page_is_that_of_the_kinds() -> None:
    assert PAGE.read_text() == document(), "run: python -m peercached.health.document"
