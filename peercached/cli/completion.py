"""`peercachectl completion`: shell completion of commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from peercached.cli.exits import EXPLAINED


@click.command("completion", epilog=EXPLAINED)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> None:
    """Prints a script that makes SHELL complete peercachectl's commands and options.

    bash: peercachectl completion bash > /etc/bash_completion.d/peercachectl;
    zsh: ... > "${fpath[1]}/_peercachectl"; fish: ... > ~/.config/fish/completions/peercachectl.fish
    """
    from peercached.cli.output import print_json

    made = get_completion_class(shell)
    assert made is not None
    script = made(
        context.find_root().command, {}, "peercachectl", "_PEERCACHECTL_COMPLETE"
    ).source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
