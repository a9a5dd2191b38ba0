"""Locked memory and huge pages, which pool registration needs."""

from __future__ import annotations

from peercached.config.values import format_size as size
from peercached.doctor.finding import Finding, trouble


def check_memlock(
    limit_bytes: int | None, may_lock_all: bool, pool_bytes: int, whose: str, needed: bool
) -> Finding:
    """`limit_bytes`: RLIMIT_MEMLOCK, None if unlimited; `may_lock_all`: CAP_IPC_LOCK."""
    check = "locked memory"
    if limit_bytes is None or may_lock_all:
        why = "CAP_IPC_LOCK" if may_lock_all else "no limit"
        return Finding(check, "ok", f"{whose} may lock any amount of memory ({why})")
    remedy = (
        "Set LimitMEMLOCK=infinity in the systemd unit, memlock unlimited in "
        "/etc/security/limits.conf, or --ulimit memlock=-1 for a container; or give CAP_IPC_LOCK."
    )
    if limit_bytes < pool_bytes:
        return Finding(
            check,
            trouble(needed),
            f"{whose} may lock {size(limit_bytes)}, less than the pool of {size(pool_bytes)}: "
            "it cannot be registered with an RDMA device",
            remedy,
        )
    return Finding(
        check,
        "warning",
        f"{whose} may lock {size(limit_bytes)}, which leaves {size(limit_bytes - pool_bytes)} "
        "beside the pool for the workers' regions",
        remedy,
    )


def check_huge_pages(
    asked: bool, held: bool, pool_bytes: int, free: int, page_bytes: int
) -> Finding:
    """`held`: the running daemon already has its huge pages; `free`: unused huge pages."""
    check = "huge pages"
    if not asked:
        return Finding(check, "ok", "not asked for (key huge_pages)")
    if held:
        return Finding(check, "ok", "the daemon that runs has its pool in huge pages")
    wanted = -(-pool_bytes // page_bytes)
    if free >= wanted:
        return Finding(check, "ok", f"{free} are free, {wanted} are wanted")
    return Finding(
        check,
        "failure",
        f"{free} of {size(page_bytes)} are free; the pool of {size(pool_bytes)} wants {wanted}",
        f"sysctl vm.nr_hugepages={wanted} (best at boot, before memory is fragmented), or set "
        "huge_pages to false.",
    )
