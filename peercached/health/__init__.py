"""Findings that need an operator's attention. Each finding has a kind; each kind has a code."""

from peercached.health.findings import Findings, Say
from peercached.health.kind import Kind, Severity
from peercached.health.lasting import lasting

__all__ = ["Findings", "Kind", "Say", "Severity", "lasting"]
