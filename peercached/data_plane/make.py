"""Makes the data plane from the configuration, and binds its ports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from peercached.config import Config
from peercached.config.memory import available_bytes, too_little_available
from peercached.config.quotas import split_quota
from peercached.config.values import group_number, user_number
from peercached.directory.epoch_store import EpochStore
from peercached.membership import Timing
from peercached.observe.port_holder import port_holder

if TYPE_CHECKING:
    from peercached._native import Engine


def make_engine(config: Config, incarnation: int, cluster_key: bytes) -> Engine:
    """Maps the pool, opens disk and devices, and says who may be a worker and how much each
    namespace may use. RuntimeError with the remedy."""
    from peercached._native import Engine

    if problem := too_little_available(config, available_bytes()):
        raise RuntimeError(problem)

    timing = Timing(config.heartbeat_interval_s, config.member_ttl_s)
    epochs, why_epochs_unknown = EpochStore(config.state_dir, config.node_id).load()
    engine = Engine(
        config,
        incarnation=incarnation,
        cluster_key=cluster_key,
        epochs=epochs,
        why_epochs_unknown=why_epochs_unknown,
        removals_path=_removals_path(config),
        follow_wait_ms=int(timing.sign_wait_s * 1000),
    )
    _guard(engine, config)
    return engine


def _removals_path(config: Config) -> str:
    """The path of the removals journal; empty without a state_dir."""
    if not config.state_dir:
        return ""
    return str(Path(config.state_dir) / f"removals-{config.node_id}.log")


def listen(engine: Engine, config: Config) -> None:
    """Serves peers at the data port, and takes the workers' socket path without serving it yet.
    RuntimeError with the remedy."""
    engine.bind_workers()
    try:
        engine.listen()
    except RuntimeError as error:
        holder = port_holder(config.host, config.data_port) if config.data_port else ""
        raise RuntimeError(f"{error}. {holder} has the port" if holder else str(error)) from error


def _guard(engine: Engine, config: Config) -> None:
    engine.guard_workers(
        group_number(config.socket_group) if config.socket_group else -1,
        [user_number(name) for name in config.worker_users],
        [group_number(name) for name in config.worker_groups],
    )
    set_quotas(engine, config)


def set_quotas(engine: Engine, config: Config) -> None:
    """Sets `namespace_quotas`, at the start and with each reload."""
    quotas = [split_quota(rule) for rule in config.namespace_quotas]
    engine.set_quotas([quota.in_bytes(config.pool_size, config.disk_size) for quota in quotas])
