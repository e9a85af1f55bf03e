"""``cloudckpt retain``: which checkpoints are kept, and how their objects are placed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import click

import cloudckpt
from cloudckpt import fleet
from cloudckpt.cli import names
from cloudckpt.cli.failures import NO, complain
from cloudckpt.cli.frame import confirm, dry_run_option, run_argument, with_output, with_store, yes_option
from cloudckpt.cli.screen import Column, Document, Output
from cloudckpt.cli.words import counted, iso, rules_text, size, span, when
from cloudckpt.curate import Thinned
from cloudckpt.retention import DEFAULT, PLACES, Retention, inherits
from cloudckpt.run import Run
from cloudckpt.store import Store

NO_RULE: Final = "no rule keeps it"

CHECKPOINTS: Final = (
    Column("action", "", style="yellow"),
    Column("seq", "seq", right=True, style="bold"),
    Column("step", "step", right=True),
    Column("time", "saved", when),
    Column("size", "stored", size, right=True),
    Column("why", "why"),
)

RUNS: Final = (
    Column("run", "run", style="bold"),
    Column("rules", "rules", rules_text),
    Column("keeps", "kept", right=True),
    Column("drops", "dropped", right=True),
    Column("bytes", "bytes", size, right=True),
)


def _span(_context: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    try:
        return None if value is None else span(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _count(name: str, what: str) -> Any:
    return click.option(
        f"--{name.replace('_', '-')}", name, type=click.IntRange(min=1), metavar="N", help=what
    )


def _rule_options(command: Any) -> Any:
    for option in reversed(
        (
            _count("keep_last", "Keep the newest N."),
            click.option(
                "--keep-within", metavar="SPAN", callback=_span, help="Keep what is younger: 36h, 7d, 2w."
            ),
            *(
                _count(f"{period}", f"Keep the newest of each of the last N {units}.")
                for period, units in (
                    ("hourly", "hours"),
                    ("daily", "days"),
                    ("weekly", "weeks"),
                    ("monthly", "months"),
                    ("yearly", "years"),
                )
            ),
            _count("min_keep", "Never keep fewer than N, whatever the clocks say."),
            click.option(
                "--lock", metavar="LOCK", help="Lock each object: compliance:7y, governance:30d, or none."
            ),
            click.option(
                "--storage-class", metavar="WORD", help="The storage class of each object, or none."
            ),
        )
    ):
        command = option(command)
    return command


@click.command("retain")
@run_argument("run", "[RUN]", required=False)
@_rule_options
@click.option("--default", is_flag=True, help="The rules of the store, for runs that have none of their own.")
@click.option("--apply", is_flag=True, help="With --default: apply them to all runs now.")
@click.option("--prefix", help="With --apply: only to runs whose id begins like this.")
@click.option("--clear", is_flag=True, help="With --default: take the store's rules away.")
@dry_run_option
@yes_option
@with_output
@with_store
def retain(
    store: Store,
    out: Output,
    run: str | None,
    *,
    default: bool,
    apply: bool,
    prefix: str | None,
    clear: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Set which checkpoints are kept, and drop the others.

    A checkpoint is kept while any rule keeps it. The newest, tagged and held ones and the one
    that the writer started from are always kept. Without a rule, the run's own are applied.
    The rules stay with the run, whatever its code asks for. A lock or a storage class alone
    leaves the other rules as they are, and the other way round.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if prefix is not None and not apply:
        raise click.UsageError("--prefix goes with --apply")
    if default:
        if run is not None:
            raise click.UsageError("--default is of the whole store; leave RUN out")
        rules = _rules(chosen, lambda: store.get_retention() or DEFAULT)
        _default(store, out, rules, apply=apply, prefix=prefix or "", clear=clear, dry_run=dry_run, yes=yes)
        return
    if run is None or apply or clear:
        raise click.UsageError("name a RUN, or say --default (which --apply and --clear go with)")

    def work(found: Run) -> None:
        rules = _rules(chosen, lambda: found.summary().retention)
        _retain(found, out, rules, dry_run=dry_run, yes=yes)

    names.whole(store, run, work)


def _rules(given: Mapping[str, Any], old: Callable[[], Retention]) -> Retention | None:
    """Return the rules that are asked for; None when nothing is asked for."""
    if not given:
        return None
    return replace(old(), **given) if given.keys() <= set(PLACES) else Retention(**given)


def _retain(run: Run, out: Output, rules: Retention | None, *, dry_run: bool, yes: bool) -> None:
    plan = run.retain(rules, dry_run=True)
    if not out.as_json:
        out.rows(_lines(run, plan), CHECKPOINTS)
    if not dry_run:
        if plan.dropped:
            confirm(
                f"Drop {counted(len(plan.dropped), 'checkpoint')} of run {run.id!r} ({size(plan.bytes)})?",
                yes=yes,
            )
        plan = run.retain(rules)
    if out.as_json:
        out.row(shape(plan, dry_run=dry_run), ())


def _lines(run: Run, plan: Thinned) -> Iterator[Document]:
    dropped = frozenset(plan.dropped)
    for info in run.history():
        yield {
            "action": "drop" if info.seq in dropped else "keep",
            "seq": info.seq,
            "step": info.step,
            "time": iso(info.time),
            "size": info.size,
            "why": NO_RULE if info.seq in dropped else plan.why.get(info.seq),
        }


def shape(plan: Thinned, *, dry_run: bool) -> dict[str, Any]:
    """Return what was done to a run, as JSON."""
    return {
        "run": plan.run,
        "rules": plan.rules.to_json(),
        "kept": [{"seq": seq, "why": why} for seq, why in plan.why.items()],
        "dropped": list(plan.dropped),
        "keeps": len(plan.why),
        "drops": len(plan.dropped),
        "bytes": plan.bytes,
        "dry_run": dry_run,
    }


def _default(
    store: Store,
    out: Output,
    rules: Retention | None,
    *,
    apply: bool,
    prefix: str,
    clear: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    if clear:
        if rules is not None or apply:
            raise click.UsageError("--clear takes the store's rules away; it goes without rules and --apply")
        if not dry_run:
            store.set_retention(None)
        out.done("runs that begin from now on have no rules of the store's", {"retention": None})
        return
    old = store.get_retention()
    wanted = old if rules is None else inherits(rules, old or DEFAULT)
    if apply:
        if wanted is None:
            raise click.UsageError("the store has no rules yet; give some, such as --keep-last 10")
        if not dry_run:
            runs = f"all runs {prefix}*" if prefix else "all runs"
            confirm(f"Drop what {wanted.keeping} does not keep, in {runs} of {store.url}?", yes=yes)
    if rules is not None and not dry_run:
        store.set_retention(rules)
    if apply and wanted is not None:
        _apply(store, out, wanted, prefix=prefix, dry_run=dry_run)
    elif rules is None or wanted is None:
        said = "the store has no rules of its own" if wanted is None else f"the store's rules: {wanted}"
        out.done(said, {"retention": wanted and wanted.to_json()})
    else:
        would = "would keep" if dry_run else "keep"
        out.done(f"runs that begin from now on {would} {wanted}", {"retention": wanted.to_json()})


def _apply(store: Store, out: Output, rules: Retention, *, prefix: str, dry_run: bool) -> None:
    def work(store: Store, run: str) -> Thinned:
        return store.run(run).retain(rules, default=True, dry_run=dry_run)

    failed = 0

    def rows() -> Iterator[Document]:
        nonlocal failed
        with out.progress("runs", lambda: sum(1 for _ in store.runs(prefix))) as advance:
            for done in fleet.each(store, work, (info.id for info in store.runs(prefix))):
                advance(1)
                if done.value is not None:
                    yield shape(done.value, dry_run=dry_run)
                elif not isinstance(done.error, cloudckpt.RunDeletedError):
                    failed += 1
                    complain(str(done.error))

    out.rows(rows(), RUNS)
    if failed:
        raise click.exceptions.Exit(NO)
