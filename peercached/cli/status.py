"""`peercachectl status`: problems first, then the rest, on one screen."""

from __future__ import annotations

import sys
from typing import Any

import click

from peercached.admin.status import Status
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.fleet import COLUMNS, rows, statuses
from peercached.cli.output import (
    count,
    duration,
    percent,
    plural,
    print_json,
    print_table,
    share,
    size,
)

_MARKS = {"error": "ERROR  ", "warning": "WARNING", "info": "info   "}
_ORDER = list(_MARKS)
_COLOURS = {"ERROR": "red", "WARNING": "yellow", "Healthy:": "green"}
_NAMESPACES_SHOWN_MAX = 8
_PEERS_SHOWN_MAX = 8


_EXITS = (
    "Exit codes with --exit-code: 0 all is well, 1 there are warnings, 2 there are errors (or "
    "wrong usage), 3 a daemon was not reached, 4 failed in another way."
)


@ctl_command("status", _EXITS)
@click.option("--all", "everybody", is_flag=True, help="One line for each member instead.")
@click.option("--exit-code", "tells", is_flag=True, help="Exit with 1 for warnings, 2 for errors.")
def status(target: Target, as_json: bool, everybody: bool, tells: bool) -> None:
    """Health with remedies first, then pool, directory, peers and counters."""
    with target.admin() as admin:
        document = admin.status()
    if everybody:
        asked = statuses(target, document)
        answers = [one for one in asked.values() if isinstance(one, Status)]
        silent = len(asked) - len(answers)
        if as_json:
            print_json({node_id: _for_scripts(one) for node_id, one in asked.items()})
        else:
            print_table(COLUMNS, rows(asked, document))
    else:
        answers, silent = [document], 0
        if as_json:
            print_json(document.model_dump(mode="json"))
        else:
            for line in health_lines(document):
                click.secho(line, fg=_COLOURS.get(line.split(" ", 1)[0]))
            for line in ("", *_summary(document)):
                click.echo(line)
    if tells:
        said = {entry.severity for answer in answers for entry in answer.health}
        sys.exit(2 if silent or "error" in said else 1 if "warning" in said else 0)


def _for_scripts(answer: Status | str) -> dict[str, Any]:
    return {"problem": answer} if isinstance(answer, str) else answer.model_dump(mode="json")


def health_lines(document: Status) -> list[str]:
    if not document.health:
        return ["Healthy: nothing needs attention."]
    lines = []
    for entry in sorted(document.health, key=lambda entry: _ORDER.index(entry.severity)):
        code = f" [{entry.code}]" if entry.code else ""
        lines.append(f"{_MARKS[entry.severity]} {entry.sentence}{code}")
        if entry.remedy:
            lines.append(f"        -> {entry.remedy}")
    return lines


def _disk(document: Status) -> list[str]:
    disk = document.disk
    if not disk.state:
        return []
    return [
        _line(
            "disk",
            f"{size(disk.used_bytes)} of {size(disk.size_bytes)} used "
            f"({share(disk.used_bytes, disk.size_bytes)})",
            plural(disk.pages, "page"),
            f"{count(disk.promoted)} promoted, {count(disk.pages_evicted)} evicted",
            f"{plural(disk.queued_pages, 'page')} to be written" if disk.queued_pages else "",
            "" if disk.state == "on" else disk.state.replace("_", " "),
        )
    ]


def _elsewhere(document: Status) -> str:
    """The places that pages of the pool came from."""
    if not document.cold.store:
        return "other nodes"
    alone = len(document.membership.members) < 2
    return "the object store" if alone else "other nodes and the object store"


def _cold(document: Status) -> list[str]:
    cold = document.cold
    if not cold.store:
        return []
    requests = ", ".join(f"{count(n)} {kind}" for kind, n in sorted(cold.requests.items()))
    sweeper = "this node" if cold.is_sweeper else cold.sweeper.partition(" ")[0]
    cost = cold.monthly_cost
    return [
        _line(
            "store",
            cold.store,
            f"{size(cold.stored_bytes)} of {size(cold.size_bytes)}",
            f"{plural(cold.pages, 'page')} in {plural(cold.objects, 'object')}",
            f"{count(cold.removed_pages)} removed" if cold.removed_pages else "",
            f"swept by {sweeper}" if sweeper else "",
        ),
        _line(
            "",
            f"{count(cold.read_pages)} pages read, {count(cold.written_pages)} written",
            f"requests: {requests}" if requests else "",
            f"a month costs about {cost['bytes']:.2f} for the bytes" if cost else "",
            f"and {cost['requests']:.2f} for the requests of this node"
            if "requests" in cost
            else "",
        ),
    ]


def _summary(document: Status) -> list[str]:
    node, pool, shard = document.node, document.pool, document.shard
    copies = document.copies
    membership, ipc = document.membership, document.ipc
    suspects = sum(member.suspect for member in membership.members)
    lines = [
        _line(
            "node",
            f"{node.id} at {node.host}:{node.meta_port} (data {node.data_port})",
            "memory only" if node.role == "memory" else "",
            f"peercached {node.version}, pid {node.pid}, up {duration(node.uptime_s)}",
        ),
        _line(
            "cluster",
            f"{plural(len(membership.members), 'node')} in view {membership.view_number}",
            f"kept by {', '.join(master.node_id for master in membership.masters)}"
            if membership.masters
            else "",
            f"{suspects} suspect" if suspects else "",
        ),
        _line(
            "pool",
            f"{size(pool.used_bytes)} of {size(pool.capacity_bytes)} used "
            f"({share(pool.used_bytes, pool.capacity_bytes)})",
            plural(pool.keys, "page"),
            f"{size(pool.adopted_bytes)} from {_elsewhere(document)}" if pool.adopted_bytes else "",
            f"{count(pool.evictions)} evicted",
            f"{count(pool.no_space)} found no space" if pool.no_space else "",
        ),
        *_pins(document),
        *_recovery(document),
        *_disk(document),
        *_cold(document),
        _line(
            "directory",
            f"{count(shard.entries)} of {count(shard.capacity_entries)} records here "
            f"({size(shard.bytes)})",
            f"{count(shard.full)} refused: full" if shard.full else "",
            f"copies of {count(copies.records)} records of {plural(copies.holders, 'node')} "
            f"({size(copies.bytes)})"
            if copies.holders
            else "",
        ),
        _line(
            "workers",
            f"{len(document.workers)} attached, {plural(ipc.connections, 'connection')}",
            plural(ipc.bad_frames, "bad frame") if ipc.bad_frames else "",
            plural(ipc.regions_lost, "lost region") if ipc.regions_lost else "",
        ),
    ]
    lines.extend(_gpus(document))
    lines.extend(_operations(document))
    lines.extend(_forecasts(document))
    lines.extend(_routers(document))
    lines.extend(_transfers(document))
    return lines


def _forecasts(document: Status) -> list[str]:
    done = document.operations
    if not (done.cut_pages or done.given_up_pages):
        return []
    load, compute = duration(done.cut_us / 1e6), duration(done.computed_us / 1e6)
    cut = f"{plural(done.cut_pages, 'page')} computed instead: {load} to load, {compute} to compute"
    return [
        _line(
            "forecasts",
            cut if done.cut_pages else "",
            f"{plural(done.given_up_pages, 'page')} given up" if done.given_up_pages else "",
        )
    ]


def _routers(document: Status) -> list[str]:
    """Events of pages and hints, where their ports are open."""
    events, doors, hints = document.kv_events, document.routers, document.hints
    lines = []
    if events.port:
        lines.append(
            _line(
                "events",
                f"ports {events.port} and {events.port + 1} ({events.auth or 'none'})",
                plural(events.subscribers, "subscriber"),
                f"{plural(events.followers, 'follower')} over gRPC" if events.followers else "",
                f"{plural(events.handshakes_refused, 'handshake')} refused"
                if events.handshakes_refused
                else "",
            )
        )
    answered = sum(one.count for one in hints.answered)
    if doors.port or answered or hints.malformed:
        refused = sum(one.count for one in hints.answered if one.outcome == "refused")
        lines.append(
            _line(
                "hints",
                f"router port {doors.port}" if doors.port else "",
                f"{plural(answered, 'action')} answered",
                f"{count(hints.waiting)} waiting" if hints.waiting else "",
                f"{count(refused)} refused" if refused else "",
                plural(hints.malformed, "malformed envelope") if hints.malformed else "",
                plural(doors.unauthenticated, "call") + " without the token"
                if doors.unauthenticated
                else "",
            )
        )
    return lines


def _gpus(document: Status) -> list[str]:
    return [
        _line(
            "GPU",
            f"{gpu.name} ({gpu.id[:8]})",
            f"LOST ({gpu.why_lost})" if gpu.why_lost else "",
            f"{plural(gpu.regions, 'region')}, {size(gpu.region_bytes)}",
            f"{size(gpu.copied_bytes)} copied",
        )
        for gpu in document.gpus
    ]


def _pins(document: Status) -> list[str]:
    pins = document.pins
    if not (pins.pages or pins.refused):
        return []
    names = {one.id: one.name for one in document.namespaces}
    by_namespace = [
        f"{names.get(one.id) or f'id {one.id}'} {size(one.bytes)}"
        for one in pins.namespaces[:_NAMESPACES_SHOWN_MAX]
    ]
    return [
        _line(
            "pinned",
            f"{plural(pins.pages, 'page')}, {size(pins.bytes)} of at most {size(pins.bytes_max)}",
            *by_namespace,
            f"{count(pins.refused)} refused" if pins.refused else "",
        )
    ]


def _recovery(document: Status) -> list[str]:
    found = document.recovery
    if not found.file:
        return []
    dropped = sum(found.dropped.model_dump().values())
    back = f"{plural(found.pages, 'page')} ({size(found.bytes)}) kept over the restart"
    return [
        _line(
            "pool file",
            found.file,
            f"emptied: {found.why_fresh}" if found.why_fresh else back,
            "" if found.why_fresh else f"verified in {found.seconds:.2f} s",
            f"{count(dropped)} dropped" if dropped else "",
        )
    ]


def _line(title: str, *parts: str) -> str:
    return f"{title:<10} {', '.join(part for part in parts if part)}"


def _demand(document: Status) -> list[str]:
    demand = document.demand
    if not demand.asked:
        return []
    tiers = ", ".join(
        f"{count(n)} {tier.replace('_', ' ')}" for tier, n in demand.found.items() if n
    )
    return [
        _line(
            "hit rate",
            f"{percent(demand.hit_rate)} of {plural(demand.asked, 'key')} looked for"
            + (f" (found: {tiers})" if tiers else ""),
            *(
                f"{percent(demand.hit_rate_if(pool))} with {pool} the pool"
                for pool, gained in demand.evicted.items()
                if gained
            ),
            plural(demand.tokens_found, "token") + " saved" if demand.tokens_found else "",
        )
    ]


def _operations(document: Status) -> list[str]:
    """One line per operation: the number of pages, and the failures by status."""
    lines = _demand(document)
    for name, outcomes in (("set", document.operations.set), ("get", document.operations.get)):
        if not any(outcomes.values()):
            continue
        total = sum(outcomes.values())
        others = sorted(outcomes.items(), key=lambda item: -item[1])
        parts = [f"{count(number)} {what}" for what, number in others if number]
        lines.append(_line(name, f"{plural(total, 'page')}: {', '.join(parts)}"))
    single = {k: v for k, v in document.operations if isinstance(v, int) and v}
    parts = [
        f"{name.replace('_', ' ')} {size(number) if name.startswith('bytes') else count(number)}"
        for name, number in single.items()
    ]
    # A few per line, so that one long line does not scroll the screen.
    for start in range(0, len(parts), 5):
        lines.append(_line("counters" if start == 0 else "", *parts[start : start + 5]))
    return lines


def _transport(document: Status) -> list[str]:
    transport = document.transport
    if not transport.protocol:
        return []
    lines = [_line("pages over", transport.protocol, transport.why)]
    for rail in transport.rails:
        lines.append(
            _line(
                f"rail {rail.rail}",
                f"{rail.device}:{rail.port} " + ("up" if rail.up else f"DOWN ({rail.why})"),
                f"on {rail.netdev}" if rail.netdev else "",
                f"{rail.rate_gbps:g} Gb/s",
                f"MTU {rail.mtu}",
                f"GID {rail.gid_index} ({rail.gid})",
                f"{size(rail.registered_bytes)} registered",
                f"{plural(rail.pages, 'page')}, {size(rail.bytes)} read" if rail.pages else "",
                plural(rail.errors, "error") if rail.errors else "",
            )
        )
    return lines


def _transfers(document: Status) -> list[str]:
    server = document.tcp_server
    lines = _transport(document)
    if server.pages or server.channels:
        lines.append(
            _line(
                "served",
                f"{plural(server.pages, 'page')}, {size(server.bytes)} to peers "
                f"on {plural(server.channels, 'channel')}",
                f"{count(server.stale)} stale" if server.stale else "",
            )
        )
    busiest = sorted(document.transfer, key=lambda peer: -peer.bytes)
    for peer in busiest[:_PEERS_SHOWN_MAX]:
        lines.append(
            _line(
                "read from",
                f"{peer.node_id}: {plural(peer.pages, 'page')}, {size(peer.bytes)} "
                f"on {plural(peer.channels, 'channel')} ({peer.engine})",
                plural(peer.errors, "error") if peer.errors else "",
                plural(peer.deadlines, "deadline") if peer.deadlines else "",
                f"{count(peer.corrupt)} corrupt" if peer.corrupt else "",
            )
        )
    if len(busiest) > _PEERS_SHOWN_MAX:
        lines.append(_line("", f"and {len(busiest) - _PEERS_SHOWN_MAX} more peers (--json)"))
    return lines
