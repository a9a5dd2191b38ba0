"""`get`, `put`, `exists`, `remove`: single pages, through the same socket as any worker.

The worker's client reports every failure as a miss, as an engine needs it. An operator wants the
reason. So we test the socket first; a miss here means that the daemon was running.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import BinaryIO, NoReturn

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command, key_bytes, namespace_option, shown
from peercached.cli.connection import Target
from peercached.cli.locate import must_be_absent
from peercached.cli.output import plural, print_json, size

PAGE_BYTES_MAX = 1 << 30


@ctl_command("get")
@click.argument("key")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the page. Default: standard output.",
)
@namespace_option
def get(target: Target, as_json: bool, key: str, namespace: str, output: Path | None) -> None:
    """Reads the page of KEY, from whichever node has it, or from the object store.

    With --json and no -o the page is in the document, in base64.
    """
    if output is None and not as_json and sys.stdout.isatty():
        raise exits.Failure(
            "a page is binary and this is a terminal; give -o FILE, or a pipe", exits.USAGE
        )
    target.must_be_here("pages go through the workers' socket")
    with target.admin() as admin:
        found = admin.locate(namespace, key_bytes(key))
    page: bytes | None = None
    why = "nobody has it"
    # Holders of one key may have pages of different lengths, if the namespace is not what the user
    # thinks. Try each length once; the first hit wins.
    lengths = dict.fromkeys(holder.length for holder in found.holders)
    stored = "" if found.stored is None or found.holders else found.stored.object
    if found.stored is not None:
        lengths[found.stored.length] = None
    if lengths:
        with target.worker(namespace) as client:
            for length in lengths:
                region = client.alloc(length)
                (status,) = client.batch_get([key_bytes(key)], region, [0], length)
                if status:
                    page = bytes(region.view)
                    break
                if status.name != "absent":
                    raise _failure(f"{shown(key)} was not read", status.name)
                holder = f"the object store, in {stored}," if stored else "its holder"
                why = f"{holder} did not give it ({status.name}); see `peercachectl status`"
    if page is None:
        must_be_absent(key, found)
        _absent(as_json, key, why)
    if output is not None:
        try:
            output.write_bytes(page)
        except OSError as error:
            raise exits.Failure(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        document: dict[str, object] = {"key": key, "present": True, "length": len(page)}
        if stored:
            document["object"] = stored
        if output is None:
            document["base64"] = base64.b64encode(page).decode()
        else:
            document["file"] = str(output)
        print_json(document)
    elif output is None:
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
    else:
        click.echo(f"{size(len(page))} in {output}" + (f", from {stored}" * bool(stored)), err=True)


@ctl_command("put")
@click.argument("key")
@click.argument("file", type=click.File("rb"))
@namespace_option
def put(target: Target, as_json: bool, key: str, namespace: str, file: BinaryIO) -> None:
    """Sets the page of KEY to the content of FILE (- for standard input)."""
    page = file.read(PAGE_BYTES_MAX + 1)
    if not page:
        raise exits.Failure("the file is empty; a page has at least one byte", exits.USAGE)
    if len(page) > PAGE_BYTES_MAX:
        raise exits.Failure(
            f"the file is larger than {size(PAGE_BYTES_MAX)}, the largest page", exits.USAGE
        )
    with target.worker(namespace) as client:
        region = client.alloc(len(page))
        region.view[:] = page
        (status,) = client.batch_set([key_bytes(key)], region, [0], len(page))
    if as_json:
        print_json({"key": key, "length": len(page), "status": status.name.lower()})
    if not status:
        raise _failure(f"{shown(key)} was not set", status.name.lower())
    if not as_json:
        click.echo(f"Set {shown(key)}: {size(len(page))}.")


_REASONS = {
    "no_space": "the pool is full of pages in use; set a larger pool_size",
    "too_large": "it is larger than the pool; set a larger pool_size",
    "bad_key": "keys have 1 to 4096 bytes",
    "no_daemon": "the daemon went away; see its log, and try again",
    "suspect": "its holder does not answer; see `peercachectl status`",
    "deadline": "the daemon did not answer in time; see its log, or give --timeout more seconds",
}


def _failure(what: str, status: str) -> exits.Failure:
    reason = _REASONS.get(status, f"{status}; see `peercachectl status`")
    return exits.Failure(f"{what}: {reason}", exits.of_pages([status]))


@ctl_command("exists")
@click.argument("keys", nargs=-1, required=True)
@namespace_option
def exists(target: Target, as_json: bool, keys: tuple[str, ...], namespace: str) -> None:
    """Says for each of KEYS whether some node has it (exit code 0 if all are present)."""
    with target.worker(namespace) as client:
        present = client.presence([key_bytes(key) for key in keys])
    unknown = [status.name for status in present if status.name not in ("ok", "absent")]
    if unknown:
        raise _failure(f"{plural(len(unknown), 'key')} not looked up", unknown[0])
    absent = [key for key, there in zip(keys, present, strict=True) if not there]
    if absent:
        with target.admin() as admin:
            for key in absent:
                must_be_absent(key, admin.locate(namespace, key_bytes(key)))
    prefix = next((i for i, there in enumerate(present) if not there), len(present))
    if as_json:
        print_json({"prefix": prefix, "present": dict(zip(keys, map(bool, present), strict=True))})
    else:
        for key, there in zip(keys, present, strict=True):
            click.echo(f"{'present' if there else 'absent '}  {shown(key)}")
    sys.exit(exits.OK if prefix == len(present) else exits.ABSENT)


@ctl_command("remove")
@click.argument("keys", nargs=-1, required=True)
@namespace_option
def remove(target: Target, as_json: bool, keys: tuple[str, ...], namespace: str) -> None:
    """Removes KEYS from all nodes (exit code 1 if one of them was not there)."""
    with target.worker(namespace) as client:
        outcomes = [
            status.name.lower() for status in client.remove([key_bytes(key) for key in keys])
        ]
    words = {"ok": "removed", "absent": "absent "}
    if as_json:
        print_json({"outcome": dict(zip(keys, outcomes, strict=True))})
    else:
        for key, outcome in zip(keys, outcomes, strict=True):
            click.echo(f"{words.get(outcome, outcome)}  {shown(key)}")
    failed = [outcome for outcome in outcomes if outcome not in words]
    if failed:
        raise _failure(f"{plural(len(failed), 'key')} not removed", failed[0])
    sys.exit(exits.of_pages(outcomes))


def _absent(as_json: bool, key: str, why: str) -> NoReturn:
    if as_json:
        print_json({"key": key, "present": False})
    else:
        click.echo(f"peercachectl: {shown(key)} is absent: {why}", err=True)
    sys.exit(exits.ABSENT)
