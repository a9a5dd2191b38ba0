"""`peercachectl size`: from model, context and users to the memory of each node."""

from __future__ import annotations

from dataclasses import asdict

import click

from peercached.cli.exits import EXPLAINED, USAGE, Failure
from peercached.cli.output import count, plural, print_json
from peercached.cli.output import size as readable


@click.command("size", epilog=EXPLAINED)
@click.option("--model", "wanted", required=True, metavar="NAME|PATH", help="Known name, or path.")
@click.option(
    "--context", type=click.IntRange(1, 1 << 32), required=True, help="Tokens of one prompt."
)
@click.option(
    "--users", type=click.IntRange(1, 1 << 32), required=True, help="Prompts to keep at once."
)
@click.option(
    "--shared", type=click.IntRange(0), default=0, help="First tokens that all prompts share."
)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--kv-dtype",
    type=click.Choice(["bf16", "fp16", "fp8", "fp4"]),
    default="bf16",
    show_default=True,
)
@click.option("--page-tokens", type=click.IntRange(1), default=64, show_default=True)
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Ranks.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
def size(
    wanted: str,
    context: int,
    users: int,
    shared: int,
    nodes: int,
    kv_dtype: str,
    page_tokens: int,
    tp: int,
    as_json: bool,
) -> None:
    """Memory that each node needs to keep so many prompts of a model.

    --model is a known name (llama-3.1-8b, qwen3-32b, deepseek-v3, ...: a wrong one lists them all)
    or the path of a model's config.json. Asks no daemon.
    """
    from peercached.config import Config
    from peercached.directory.owner_choice import owners_in
    from peercached.sizing import models, working_set

    try:
        model = models.find(wanted)
    except models.UnknownModel as error:
        raise Failure(str(error), USAGE) from error
    # A compressed cache is the same on all ranks, and stored once in one piece.
    pieces = 1 if model.kv_heads == 0 else 2 * tp
    plan = working_set.plan(
        model,
        kv_dtype,
        context_tokens=context,
        users=users,
        shared_tokens=shared,
        nodes=nodes,
        owners=owners_in(nodes),
        page_tokens=page_tokens,
        pieces_per_page=pieces,
        tp=tp,
    )
    if as_json:
        print_json({"model": model.name, **asdict(plan)})
        return
    for line in (
        f"{model.name}, {kv_dtype}: {readable(plan.bytes_per_token)} of KV cache per token",
        f"a page of {page_tokens} tokens has {readable(plan.page)} under {plural(pieces, 'key')}",
        f"{count(users)} prompts of {count(context)} tokens: {readable(plan.working_set)} "
        f"in {plural(plan.pages, 'page')}",
        f"directory: {plural(plan.records_per_owner, 'record')} at each of "
        f"{plural(owners_in(nodes), 'owner')} ({readable(plan.directory_per_owner)})",
        "",
        f'pool_size = "{_rounded_up(plan.pool_per_node)}"   # on each of {plural(nodes, "node")}',
    ):
        click.echo(line)
    if plan.records_per_owner > Config().directory_capacity:
        click.echo(f"directory_capacity = {plan.records_per_owner}")


def _rounded_up(size_bytes: int) -> str:
    """In whole GiB, or MiB below that."""
    unit, name = (1 << 30, "GiB") if size_bytes > 1 << 30 else (1 << 20, "MiB")
    return f"{-(-size_bytes // unit)}{name}"
