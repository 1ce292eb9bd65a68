"""``testbed compare RUN RUN``: decisions, jobs and metrics of two runs beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json
from testbed.errors import BadInput
from testbed.results.comparison import Comparison, JobPair
from testbed.results.comparison import compare as compare_runs
from testbed.results.reading import load_run, policy_folders, policy_of
from testbed.units import human_duration, human_share

FirstPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run folder, or a policy's in it.")
]
SecondPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="Another run folder, of the same jobs.")
]
Jobs = Annotated[int, typer.Option(min=0, help="How many jobs to list, most different first.")]

_COUNT, _NUMBER = "{:,}".format, "{:,.2f}".format
_METRICS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("finished", "finished", _COUNT),
    ("rejected", "rejected", _COUNT),
    ("killed", "killed", _COUNT),
    ("met their deadline", "met_deadline", _COUNT),
    ("success", "success_rate", human_share),
    ("VM use", "vm_utilisation", human_share),
    ("links reserved", "link_utilisation", human_share),
    ("mean wait", "wait_mean_s", human_duration),
    ("mean response", "response_mean_s", human_duration),
    ("mean slowdown", "bounded_slowdown_mean", _NUMBER),
    ("preemptions", "preemptions", _COUNT),
    ("migrations", "migrations", _COUNT),
    ("revenue", "revenue", _NUMBER),
)


def compare(first: FirstPath, second: SecondPath, jobs: Jobs = 10, as_json: Json = False) -> None:
    """Compare two runs: simulator against live network, or policy against policy.

    Folders of several policies are compared policy by policy. Exit codes: 0 compared, 2 not run
    folders, or damaged ones.
    """
    found = [compare_runs(load_run(a), load_run(b)) for a, b in _pairs(first, second)]
    if as_json:
        console.print_json([each.to_json() for each in found])
        return
    for each in found:
        _show(each, jobs)


def _pairs(first: Path, second: Path) -> list[tuple[Path, Path]]:
    """The folders to compare: those of one policy each, or of the policies both have."""
    ones, twos = policy_folders(first), policy_folders(second)
    if len(ones) == len(twos) == 1:
        return [(ones[0], twos[0])]
    left = _by_policy(twos)
    pairs = [
        # A policy that stands in both files twice is compared in order.
        (path, left[policy].pop(0))
        for policy, own in _by_policy(ones).items()
        for path in own
        if left.get(policy)
    ]
    if not pairs:
        raise BadInput(
            f"{first} and {second} have no policy in common",
            f"name one policy's folder of each, as {ones[0]} {twos[0]}",
        )
    return pairs


def _by_policy(folders: list[Path]) -> dict[str, list[Path]]:
    """Folders by the policy that ran; without those that were killed before their first line."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        policy = policy_of(folder)
        if policy is not None:
            found.setdefault(policy, []).append(folder)
    return found


def _show(found: Comparison, n_jobs: int) -> None:
    out = console.out()
    title = f"{found.names[0]} – {found.names[1]}"
    out.print(Text(title, style="bold"), soft_wrap=True)
    for line in _sentences(found):
        out.print(Text(line), soft_wrap=True)
    out.print(_metrics(found))
    if pairs := _worst(found, n_jobs):
        out.print(_jobs(found, pairs))


def _sentences(found: Comparison) -> list[str]:
    one, two = found.n_decisions
    part = found.difference
    if part is None:
        lines = [f"all {one} decisions are the same"]
    else:
        lines = [f"decision {part.place} (of {one} and {two}) is the first that differs:"]
        for name, decision in zip(found.names, (part.first, part.second), strict=True):
            message = "none any more" if decision is None else f"{decision.at_s:.2f} s: {decision}"
            lines.append(f"  {name}: {message}")
    if found.accepted_differ:
        lines.append(f"rejected in one run alone: {', '.join(found.accepted_differ)}")
    for name, alone in zip(found.names, found.only_in, strict=True):
        if alone:
            lines.append(f"only in {name}: {', '.join(alone)}")
    if found.completion is not None:
        median, most = found.completion.median, found.completion.max
        lines.append(f"completion times differ by {median:.2%} (median), {most:.2%} at most")
    if found.success_points is not None:
        lines.append(f"success rates differ by {found.success_points:+.1f} points")
    return lines


def _metrics(found: Comparison) -> Table:
    table = Table(title_justify="left")
    table.add_column("metric")
    for name in found.names:
        table.add_column(Text(name), justify="right")
    for label, field, shown in _METRICS:
        values = [getattr(summary, field) for summary in found.summaries]
        table.add_row(label, *("–" if value is None else shown(value) for value in values))
    ratios = [s.estimate_ratio for s in found.summaries]
    cells = ["–" if r is None else f"{r.median:.4f} (p95 {r.p95:.4f})" for r in ratios]
    table.add_row("measured/estimate", *cells)
    received = [s.iperf3_ratio for s in found.summaries]
    if any(received):
        cells = ["–" if r is None else f"{r.median:.4f} (least {r.min:.4f})" for r in received]
        table.add_row("iperf3/reserved", *cells)
    table.add_row("fidelity", *(Text(s.fidelity.verdict or "–") for s in found.summaries))
    return table


def _worst(found: Comparison, n: int) -> list[JobPair]:
    """Jobs whose outcomes differ, then those whose times differ most."""

    def order(pair: JobPair) -> tuple[bool, float, str]:
        away = abs(pair.completion_difference or 0.0)
        return (len(set(pair.outcomes)) == 1, -away, pair.job_id)

    return sorted(found.jobs, key=order)[:n]


def _jobs(found: Comparison, pairs: list[JobPair]) -> Table:
    table = Table(title_justify="left")
    table.add_column("job")
    for name in found.names:
        table.add_column(Text(name), justify="right")
    table.add_column("difference", justify="right")
    for pair in pairs:
        cells = [
            Text(outcome if taken is None else human_duration(taken))
            for outcome, taken in zip(pair.outcomes, pair.measured_s, strict=True)
        ]
        away = pair.completion_difference
        table.add_row(Text(pair.job_id), *cells, "–" if away is None else f"{away:+.2%}")
    return table
