"""`peercachectl`: the operator's commands for the local daemon and its cluster."""

from __future__ import annotations

from typing import Any

import click

from peercached import __version__
from peercached.cli.connection import target_from, target_options
from peercached.cli.exits import EXPLAINED
from peercached.cli.lazy import LazyGroup

# The texts are the first sentences of the commands' own help.
_COMMANDS = {
    "status": "Health with remedies first, then pool, directory, peers and counters.",
    "wait": "Waits until the daemon serves workers.",
    "top": "Rates of gets, sets and READs, the hit rate, and what needs attention, until Ctrl-C.",
    "nodes": "The members of the cluster, as this daemon sees them, and those that left within a "
    "day.",
    "events": "Joins, deaths, restarts, clears, and findings that began or ended, as this node "
    "saw them.",
    "kv-events": "Where routers subscribe to events of pages, their keys, and how far it is.",
    "ring": "Each node's share of the digests, and how far records have come, as this daemon sees "
    "it.",
    "workers": "The worker processes attached to this daemon, and the memory they share with it.",
    "process": "The daemon's threads, memory and open files, and the machine that it runs on.",
    "namespaces": "Pages, memory, quota and hit rate of each namespace that workers of this node "
    "opened.",
    "locate": "Explains where KEY is: digest, owners in ring order, holders.",
    "trace": "Lets the daemon get KEY as it would for a worker, and tells how long each step took.",
    "get": "Reads the page of KEY, from whichever node has it, or from the object store.",
    "put": "Sets the page of KEY to the content of FILE (- for standard input).",
    "exists": "Says for each of KEYS whether some node has it (exit code 0 if all are present).",
    "remove": "Removes KEYS from all nodes (exit code 1 if one of them was not there).",
    "hints": "The hints of routers and engines: actions by outcome, budgets, and the last "
    "refusals.",
    "pages": "The hot or the pinned pages of this node's pool, and the nodes that hold them.",
    "pin": "Keeps KEYS from eviction for a while, at a node that holds them or here.",
    "unpin": "Ends the pins of KEYS at all nodes that hold them.",
    "move": "Hands the pages of KEYS in this node's pool to NODE, as a drain does.",
    "evict": "Drops pages from this node's pool as if there were no room: KEYS, or the coldest "
    "ones.",
    "clear": "Makes all pages of a namespace vanish, on every node, at once.",
    "forget": "Says that a vanished node has ended: its host is off, or gone.",
    "config": "The configuration in force in the daemon, and the source of each value.",
    "reload": "Reads the configuration again, as SIGHUP does, and names the changed keys.",
    "drain": "Takes no more sets, hands the warmest pages to peers, then leaves the cluster.",
    "undrain": "Takes sets again.",
    "devices": "RDMA devices, ports and GIDs of this host, as the kernel has them; no daemon is "
    "asked.",
    "doctor": "Checks this host: drivers, memory, RDMA ports, GPUs, packet filters, the way to the "
    "peers, and the engines' rights.",
    "support-bundle": "Writes a tar.gz with status, ring, configuration, doctor, devices, "
    "versions and the end of the log, without secrets.",
    "size": "Memory that each node needs to keep so many prompts of a model.",
    "simulate": "Replays TRACE against pools of this and other sizes, and prints the hit rates.",
    "sglang-config": "Prints the options of SGLang's launch line that make it share KV pages "
    "through this daemon, to be pasted into a shell.",
    "vllm-config": "Prints the option of vLLM's launch line that makes it share KV pages through "
    "this daemon, to be pasted into a shell.",
    "lmcache-config": "Prints the option of LMCache's server that makes it share KV pages through "
    "this daemon, to be pasted into a shell.",
    "certs": "Makes a certificate and a key for each node in FOLDER, and the authority there if "
    "there is none yet; no daemon is asked.",
    "secret": "Makes the cluster secret FILE, or replaces its secret in three steps; no daemon is "
    "asked.",
    "router-token": "Prints the token that routers show at router_port and at POST /api/v1/hints.",
    "completion": "Prints a script that makes SHELL complete peercachectl's commands and options.",
}
# The modules that are not named after their command.
_MODULES = {
    "get": "pages",
    "put": "pages",
    "exists": "pages",
    "remove": "pages",
    "pages": "page_list",
    "pin": "pins",
    "unpin": "pins",
    "config": "configuration",
    "reload": "configuration",
    "undrain": "drain",
    "router-token": "router_token",
    "kv-events": "kv_events",
}


@click.group(
    "peercachectl",
    cls=LazyGroup,
    table=_COMMANDS,
    modules=_MODULES,
    epilog=EXPLAINED,
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, prog_name="peercachectl", message="%(prog)s %(version)s")
@target_options
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Asks and steers the peercached daemon of this host, and others through it (--node).

    The daemon is found through --admin-socket, --socket, --config, PEERCACHED_ variables, or at
    its default place, in this order.
    """
    context.obj = target_from(options)


if __name__ == "__main__":
    main()
