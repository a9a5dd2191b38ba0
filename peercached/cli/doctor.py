"""`peercachectl doctor`: checks this host's RDMA, its GPUs, its reach of peers, and its doors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import print_json

if TYPE_CHECKING:
    from peercached.admin.status import Status
    from peercached.doctor.finding import Finding

_EXITS = "Exit codes: 0 all is well, 1 there are warnings, 2 there are failures (or wrong usage)."
_MARKS = {"failure": "FAILURE", "warning": "WARNING", "ok": "ok     ", "skipped": "skipped"}


@ctl_command("doctor", _EXITS)
def doctor(target: Target, as_json: bool) -> None:
    """Checks this host: drivers, memory, RDMA ports, GPUs, packet filters, the way to the peers,
    and the engines' rights. It names a remedy for each problem.

    It looks at device files, locked memory, huge pages, GIDs, MTU and MIG slices, too. It also
    tells whether engines could steer the daemon or read its files, and whether the object store
    answers.

    Give it the daemon's configuration (--config, PEERCACHED_ variables), because the checks depend
    on it. Run it as the daemon's user, or as root. Only root sees the packet filters.
    """
    from peercached.doctor.finding import exit_code

    target.must_be_here("it looks at the hardware")
    findings = examined(target)
    code = exit_code(findings)
    if as_json:
        print_json(document_of(findings))
    else:
        width = max(len(finding.check) for finding in findings)
        for level, mark in _MARKS.items():
            for finding in findings:
                if finding.level == level:
                    click.echo(f"{mark}  {finding.check:<{width}}  {finding.text}")
                    if finding.remedy:
                        click.echo(f"         {'':<{width}}  -> {finding.remedy}")
    sys.exit(code)


def examined(target: Target) -> list[Finding]:
    """Runs all checks."""
    from peercached.admin.client import NoDaemon, Refused, Unreachable
    from peercached.config import Config, ConfigError, load
    from peercached.config.own_host import NoOwnHost, own_host
    from peercached.doctor.examine import examine
    from peercached.doctor.finding import Finding

    findings: list[Finding] = []
    try:
        config = load(target.config_file, os.environ, {}).config
        config = config.model_copy(update={"host": own_host(config)[0]})
    except ConfigError as error:
        findings = [Finding("configuration", "failure", str(p)) for p in error.problems]
        config = Config()
    except NoOwnHost as error:
        problem = error.problem
        findings = [Finding("host", "failure", f"{problem.value} {problem.what}", problem.remedy)]
    status: Status | None = None
    why = ""
    try:
        with target.admin() as admin:
            status = admin.status()
            if target.config_file is None:  # the settings in force there, not our defaults
                settings = admin.config().settings.items()
                config = Config.model_validate({key: one.value for key, one in settings})
    except (NoDaemon, ConfigError) as error:
        why = str(error)
    except (Unreachable, Refused) as error:
        why = str(error)
        findings.append(Finding("daemon", "failure", why))
    return findings + examine(config, status, why)


def document_of(findings: list[Finding]) -> dict[str, Any]:
    """The document that --json prints."""
    from peercached.doctor.finding import exit_code

    return {
        "exit_code": exit_code(findings),
        "findings": [
            {"check": f.check, "level": f.level, "text": f.text, "remedy": f.remedy}
            for f in findings
        ],
    }
