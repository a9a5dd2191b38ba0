"""What needs an operator's attention. Each finding is of a kind, and the kind has a code."""

from peercached.health.findings import Findings, Say
from peercached.health.kind import Kind, Severity

__all__ = ["Findings", "Kind", "Say", "Severity"]
