"""The GPUs of this host, by UUID as in `peercachectl status --json`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, labelled

_GPU = (
    Gauge(
        "gpu_lost",
        lambda gpu: bool(gpu.why_lost),
        "1 if copies of a GPU failed, and it is out of use.",
    ),
    Gauge("gpu_regions", "regions", "Allocations of a GPU that workers share with the daemon."),
    Gauge("gpu_region_bytes", "region_bytes", "Memory of those allocations."),
    Counter("gpu_copied_bytes", "copied_bytes", "Bytes copied from and to a GPU."),
)


def families(status: Status) -> Iterator[Metric]:
    yield from labelled({gpu.id: [gpu] for gpu in status.gpus}, "gpu", _GPU)
