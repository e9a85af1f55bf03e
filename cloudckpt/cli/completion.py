"""``cloudckpt completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_CLOUDCKPT_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    In bash: eval "$(cloudckpt completion bash)", in ~/.bashrc; zsh likewise. In fish:
    cloudckpt completion fish > ~/.config/fish/completions/cloudckpt.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this click has no completion for {shell}; upgrade click")
    click.echo(kind(ctx.find_root().command, {}, "cloudckpt", VARIABLE).source())
