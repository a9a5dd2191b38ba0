"""A daemon's answer to `GET /metrics`, and the numbers in it."""

from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from harness.clock import seconds
from harness.cluster import Daemon

Labels = frozenset[tuple[str, str]]


def scrape(daemon: Daemon) -> str:
    """The whole text."""
    with urlopen(f"http://{daemon.metrics_address()}/metrics", timeout=seconds(10)) as answer:
        return str(answer.read().decode())


class Samples:
    """All numbers of one scrape."""

    def __init__(self, text: str) -> None:
        self._values: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """`peercached_<name>` with exactly these labels; 0 without such a sample."""
        return self._values.get((f"peercached_{name}", frozenset(labels.items())), 0.0)

    def each(self, name: str, label: str) -> dict[str, float]:
        """`peercached_<name>` by the value of one label, summed over the others; without zeros."""
        found: dict[str, float] = {}
        for (sample, labels), value in self._values.items():
            if sample == f"peercached_{name}" and value:
                key = dict(labels)[label]
                found[key] = found.get(key, 0.0) + value
        return found

    def total(self, name: str) -> float:
        return sum(v for (sample, _), v in self._values.items() if sample == f"peercached_{name}")


def samples(daemon: Daemon) -> Samples:
    return Samples(scrape(daemon))


def get(daemon: Daemon, path: str) -> tuple[int, str]:
    """Status code and text of a GET."""
    try:
        with urlopen(f"http://{daemon.metrics_address()}{path}", timeout=seconds(10)) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
