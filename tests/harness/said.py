"""Collects the health findings of one part of the daemon."""

from collections.abc import Callable

from peercached.health import Findings, Say


def said(report: Callable[[Say], None]) -> list[dict[str, str]]:
    """The findings of `report`: code, severity, sentence, remedy."""
    findings = Findings()
    report(findings.say)
    return findings.document()


def sentences(report: Callable[[Say], None]) -> list[str]:
    return [one["sentence"] for one in said(report)]
