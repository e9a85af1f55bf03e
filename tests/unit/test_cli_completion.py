"""What a shell completes: commands, options, and the ids of runs."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from cloudckpt.cli import frame
from cloudckpt.cli.commands import cli
from tests.unit.cli_lab import Lab, agent, new_lab


@pytest.fixture
def lab() -> Lab:
    return new_lab()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(lab: Lab, shell: str) -> None:
    told = lab("completion", shell, url=None)
    assert told.code == 0
    assert f"_CLOUDCKPT_COMPLETE={shell}_complete" in told.out
    assert lab("completion", "cmd").code == 2


def completed(lab: Lab, *typed: str) -> list[str]:
    env = {
        "CLOUDCKPT_URL": lab.url,
        "_CLOUDCKPT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["cloudckpt", *typed]),
        "COMP_CWORD": str(len(typed)),
    }
    done = CliRunner().invoke(
        cli, [], env=env, prog_name="cloudckpt", complete_var="_CLOUDCKPT_COMPLETE", catch_exceptions=False
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_a_shell_does_not_wait_for_a_store_that_is_gone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute after the Tab key, without a word."""
    seen: list[float] = []
    real = frame.cloudckpt.open

    def opened(*args: Any, **options: Any) -> Any:
        seen.append(options.get("timeout", 60.0))
        return real(*args, **options)

    monkeypatch.setattr(frame.cloudckpt, "open", opened)
    agent(lab, "nightly-1", 1)
    assert completed(lab, "show", "n") == ["nightly-1"]
    assert seen
    assert max(seen) <= 1


def test_commands_options_and_runs_are_completed(lab: Lab) -> None:
    for run in ("nightly-1", "nightly-2", "weekly"):
        agent(lab, run, 1)
    assert completed(lab, "hi") == ["history"]
    assert completed(lab, "history", "--si") == ["--since"]
    assert completed(lab, "show", "ni") == ["nightly-1", "nightly-2"]
    assert completed(lab, "show", "--store", "memory://nothing-here", "ni") == []
    assert completed(lab, "show", "--store", "gopher://x", "ni") == []
