"""Names of metrics in PromQL and in a daemon's scrape."""

import re

_NAME = re.compile(
    r"\b(?:peercached|process|instance|job|job_tier|job_source|instance_operation)[_:][a-z0-9_:]+"
)


def names_in(query: str) -> set[str]:
    """The metrics that a query reads. Recorded metrics have a colon."""
    without_labels = re.sub(r"\{[^}]*\}|by \([^)]*\)|on \([^)]*\)", "", query)
    return set(_NAME.findall(without_labels))


def names_of(text: str) -> set[str]:
    """All metrics that a scrape declares, even without samples, with the parts of histograms."""
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            names |= (
                {f"{name}_{part}" for part in ("bucket", "sum", "count")}
                if (kind == "histogram")
                else {name}
            )
    return names
