"""`peercachectl secret`: makes a cluster secret, and replaces one without a pause."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import click

from peercached.cli import exits
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json
from peercached.config.cluster_secret import (
    ClusterSecret,
    SecretProblem,
    name_of,
    read_secret,
    write_secret,
)
from peercached.error_text import reason

_EXITS = "Exit codes: 0 done, 2 wrong usage, 4 failed: the file is as it was."
_NEW_BYTES = 32

_Step = Callable[[ClusterSecret], ClusterSecret]


def _new() -> bytes:
    return secrets.token_hex(_NEW_BYTES).encode()


# Each step's change of the file, and the operator's next step.
_STEPS: dict[str, tuple[_Step, str]] = {
    "add": (
        lambda now: now.with_next(_new()),
        "Copy the file to all nodes. Then run `peercachectl secret use`.",
    ),
    "use": (
        ClusterSecret.with_next_in_use,
        "Copy the file to all nodes. When `peercachectl status --all` names no node that proved "
        "another secret, run `peercachectl secret drop`.",
    ),
    "drop": (
        ClusterSecret.without_former,
        "Copy the file to all nodes. Then the former secret opens nothing any more.",
    ),
}


@ctl_command("secret", _EXITS)
@click.argument("step", type=click.Choice(["show", "new", "first", *_STEPS]))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def secret(target: Target, as_json: bool, step: str, file: Path) -> None:
    """Makes the cluster secret FILE, or replaces its secret in three steps; no daemon is asked.

    `new` makes the file. `first` makes it for a cluster that runs without a secret: nodes with it
    accept the new secret, and nodes without one; `use` and `drop` follow (docs/security.md). `show`
    names the secrets in it. `add`, `use` and `drop` replace a secret without a pause: after each
    step, copy the file to all nodes before the next. Daemons use the new file within seconds. No
    page is lost, because the key of the page digests stays in the file.
    """
    del target
    try:
        found, next_step = _done(step, file)
    except (SecretProblem, OSError) as error:
        remedy = f": {error.remedy}" if isinstance(error, SecretProblem) else ""
        raise exits.Failure(f"{file}: {reason(error)}{remedy}") from error
    if as_json:
        also = list(map(name_of, found.others))
        print_json({"file": str(file), "secret": name_of(found.value), "also": also})
        return
    others = ", ".join(map(_words, found.others))
    click.echo(f"{file}: nodes prove {_words(found.value)}", nl=False)
    click.echo(f" and also accept {others}." if others else ".")
    if next_step:
        click.echo(next_step)


def _words(secret: bytes) -> str:
    return f"secret {name_of(secret)}" if secret else "no secret"


def _done(step: str, file: Path) -> tuple[ClusterSecret, str]:
    """The secret after the step, and the operator's next step."""
    if step in ("new", "first"):
        if file.exists():
            raise SecretProblem("is there already", "replace its secret with add, use and drop")
        made = ClusterSecret(_new()) if step == "new" else ClusterSecret(b"").with_next(_new())
        write_secret(file, made)
        if step == "first":
            return made, (
                "Give it to the daemon's user, and copy it to all nodes. Set cluster_secret_file "
                "there, and restart them one after another. Then run `peercachectl secret use`."
            )
        return made, "Give it to the daemon's user (chown peercached), and copy it to all nodes."
    found = read_secret(file)
    if step == "show":
        return found, ""
    change, next_step = _STEPS[step]
    after = change(found)
    write_secret(file, after)
    return after, next_step
