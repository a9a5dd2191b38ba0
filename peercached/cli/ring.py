"""`peercachectl ring`: each node's share of the directory, and the state of its records."""

from __future__ import annotations

import click

from peercached.admin.ring import Ring
from peercached.cli.command import ctl_command
from peercached.cli.connection import Target
from peercached.cli.output import plural, print_json, print_table, words

_OUR_RECORDS = {
    "none": "-",
    "live": "in sync",
    "scan": "being read",
    "silent": "not asked for",
    "connecting": "not connected",
}


@ctl_command("ring")
def ring(target: Target, as_json: bool) -> None:
    """Each node's share of the digests, and how far records have come, as this daemon sees it.

    "owned first" and "owned" are fractions of all digests: as their first owner, and as any
    owner. "our records" is the state of this daemon's records at that node. "its records" is the
    state of the node's records here.
    """
    with target.admin() as admin:
        document = admin.ring()
    if as_json:
        print_json(document.model_dump(mode="json"))
    else:
        _show(document)


def _show(document: Ring) -> None:
    owners = min(document.replicas, len(document.nodes))
    owning = sum(node.share_owned > 0 for node in document.nodes)
    click.echo(
        f"View {document.view_number}: {owning} of {plural(len(document.nodes), 'node')} own "
        f"records, and each digest has {owners} owner(s)."
    )
    print_table(
        ["node", ">owned first", ">owned", "our records", ">queued", "its records", "state"],
        (
            (
                node.node_id,
                _percent(node.share_first),
                _percent(node.share_owned),
                _OUR_RECORDS[node.our_records],
                node.queued,
                "in sync" if node.its_records_here else "incomplete",
                words(("this node", node.is_self), ("suspect", node.suspect)),
            )
            for node in document.nodes
        ),
    )
    if not document.final:
        click.echo(
            "\nThis node does not have all records. If it lacks a record, readers also ask the "
            "other owners, and the owners in the view before."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else "-"
