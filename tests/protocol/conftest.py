"""The table of lost answers at the end of a run: engines by fates, how many of how many tests passed."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tried: Counter[tuple[str, str]] = Counter()
    passed: Counter[tuple[str, str]] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            told = dict(report.user_properties)
            if report.when == "call" and "fate" in told:
                cell = (told["engine"], told["fate"])
                tried[cell] += 1
                passed[cell] += outcome == "passed"
    if not tried:
        return
    engines, fates = (list(dict.fromkeys(names)) for names in zip(*tried, strict=True))
    width = max(map(len, engines))
    terminalreporter.section("answers on the wire")
    terminalreporter.write_line(f"{'':{width}}  {'  '.join(fates)}")
    for engine in engines:
        cells = (f"{passed[engine, fate]}/{tried[engine, fate]}".rjust(len(fate)) for fate in fates)
        terminalreporter.write_line(f"{engine:{width}}  {'  '.join(cells)}")
