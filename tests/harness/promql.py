"""Names of metrics: in PromQL, and in what a daemon exposes."""

import re

_NAME = re.compile(
    r"\b(?:peercached|process|instance|job|job_tier|job_source|instance_operation)[_:][a-z0-9_:]+"
)


def names_in(query: str) -> set[str]:
    """The metrics that a query reads; recorded ones have a colon."""
    without_labels = re.sub(r"\{[^}]*\}|by \([^)]*\)|on \([^)]*\)", "", query)
    return set(_NAME.findall(without_labels))


def names_of(text: str) -> set[str]:
    """All that the text of a scrape has or would have, with the parts of histograms."""
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
