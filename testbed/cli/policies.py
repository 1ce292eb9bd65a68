"""``testbed policy``: the policies that there are, checks of one's own, and a
beginning for one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, Out, PictureFolder, key_and_value
from testbed.errors import BadInput, RunFailed
from testbed.owned_files import caller
from testbed.record.folder import RunFolder, write_asked_for
from testbed.schedulers.policy import CLAIMS, Parameter, PolicyKind
from testbed.schedulers.registry import known_policies
from testbed.spec.document import Problem, SpecErrors, read_document
from testbed.spec.policy_section import policy_from
from testbed.spec.sweep_section import as_yaml
from testbed.units import (
    format_duration,
    format_share,
    human_duration,
    human_share,
    number_of,
)

if TYPE_CHECKING:
    from testbed.play.playing import RunRecord
    from testbed.policy_trials.policy_standing import Row, Standing
    from testbed.policy_trials.policy_subject import (
        Effort,
        PolicyFinding,
        Subject,
    )
    from testbed.report.pictures import Picture
    from testbed.spec.experiment import Experiment
    from testbed.sweeps.intervals import Estimate

policy = typer.Typer(no_args_is_help=True)

WHICH = "A policy's name, or a class as ./mine.py:MyPolicy."
Which = Annotated[
    str, typer.Argument(metavar="NAME|FILE:CLASS", help=WHICH)
]
SETTINGS = "A parameter's value, as depth=3. May be given several times."
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=SETTINGS),
]


# -- what there is -------------------------------------------------------------


@policy.command("list")
def list_(as_json: Json = False) -> None:
    """List all policies: the testbed's, and those of installed packages."""
    kinds = known_policies().values()
    if as_json:
        console.print_json(list(map(_record, kinds)))
        return
    table = Table("policy", "schedules", "from", "parameters", "summary")
    for kind in kinds:
        cells = (
            kind.name,
            schedules(kind),
            _origin(kind),
            ", ".join(kind.takes),
            kind.summary,
        )
        table.add_row(*map(Text, cells))
    console.out().print(table)


@policy.command()
def show(name_or_class: Which, as_json: Json = False) -> None:
    """Say what a policy takes and claims, and how an experiment file names it."""
    kind = policy_from(name_or_class, Path.cwd()).kind
    if as_json:
        console.print_json(_record(kind))
        return
    console.print_text(f"{kind.name}: {kind.summary}")
    console.print_text(f"schedules {schedules(kind)}; from {_origin(kind)}")
    if kind.takes:
        table = Table("parameter", "default", "limits or choices", "help")
        for parameter in kind.takes.values():
            cells = (
                parameter.key,
                _written(parameter),
                _allowed(parameter),
                parameter.help,
            )
            table.add_row(*map(Text, cells))
        console.out().print(table)
    for claim in kind.claims_of({}):
        console.print_text(f"claims {claim}: {CLAIMS[claim]}")
    if kind.on_failure:
        console.print_text(
            f"on failure a job may {', '.join(kind.on_failure)}"
        )
    console.print_text(f"in a file: policies: [{_entry(kind)}]")


def schedules(kind: PolicyKind) -> str:
    """The kind of job that a policy is for: leases, hoses with bandwidth, or
    whole nodes.
    """
    if kind.leases:
        return "leases"
    if kind.embeds or kind.sharing is not None or kind.on_failure:
        return "hoses"
    return "nodes"


def _origin(kind: PolicyKind) -> str:
    source = kind.source
    if source is None:
        return "the testbed"
    if source.distribution:
        return f"{source.distribution} {source.version}"
    return source.written


def _record(kind: PolicyKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "summary": kind.summary,
        "schedules": schedules(kind),
        "source": kind.source,
        "parameters": [
            {
                "key": parameter.key,
                "default": parameter.default,
                "help": parameter.help,
                "unit": parameter.unit,
                "choices": parameter.choices,
                "limits": parameter.limits,
            }
            for parameter in kind.takes.values()
        ],
        "claims": {claim: CLAIMS[claim] for claim in kind.claims_of({})},
        "on_failure": kind.on_failure,
        "entry": _entry(kind),
    }


def _written(parameter: Parameter) -> str:
    """A parameter's default as a file has it."""
    value = parameter.default
    if value is None:
        return "the file's"
    if parameter.unit == "s":
        return format_duration(float(value))
    if parameter.unit == "share":
        return format_share(float(value))
    return as_yaml(value)


def _allowed(parameter: Parameter) -> str:
    if parameter.choices:
        return ", ".join(parameter.choices)
    if parameter.limits is None:
        return "–"
    low, high = parameter.limits
    return f"{low:g} to {high:g}{' s' if parameter.unit == 's' else ''}"


def _entry(kind: PolicyKind) -> str:
    """An entry of ``policies`` with every default that is not the file's: it
    decides as the name alone does.
    """
    values = []
    for parameter in kind.takes.values():
        if parameter.default is not None:
            values.append(f"{parameter.key}: {_written(parameter)}")
    parts = [f"name: {kind.name}", *values]
    # A class of a file has no name that is known elsewhere.
    if kind.source is not None and not kind.source.distribution:
        parts = [f'class: "{kind.source.written}"', *values]
    elif not values:
        return kind.name
    return "{" + ", ".join(parts) + "}"


# -- checks --------------------------------------------------------------------

MARKS = {
    "ok": "green",
    "failed": "bold red",
    "not declared": "dim",
    "not run": "yellow",
}


@dataclass(frozen=True)
class _Result:
    """All that a check has found."""

    subject: Subject
    findings: list[PolicyFinding]
    tables: list[Standing]

    @property
    def exit_code(self) -> int:
        if self.subject.broken:
            return RunFailed.exit_code
        verdicts = [finding.verdict for finding in self.findings]
        return int("failed" in verdicts)

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": self.subject.spec.label,
            "seed": self.subject.seed,
            "exit_code": self.exit_code,
            "findings": self.findings,
            "standing": self.tables,
        }


@policy.command()
def check(
    name_or_class: Which,
    settings: Settings = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Also a small live run, and its replay; needs root.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer runs; one seed in tables."),
    ] = False,
    seed: Annotated[
        int,
        typer.Option("--seed", min=0, help="Of the random experiments."),
    ] = 1,
    out: Out = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", metavar="FILE", help="Write a page of it all too."
        ),
    ] = None,
    to: PictureFolder = None,
    as_json: Json = False,
) -> None:
    """Check a policy by the property tests of the testbed's own, and say where
    it stands.

    Exit codes: 0 every check passed, 1 one failed, 2 bad usage or no policy, 4
    the policy broke a run: it is impure or slow, or what it decides is no
    decision.
    """
    from testbed.policy_trials.policy_standing import QUICK_SEEDS, SEEDS
    from testbed.policy_trials.policy_subject import QUICK, Effort

    subject = _subject(
        name_or_class, settings, seed, QUICK if quick else Effort()
    )
    seeds = QUICK_SEEDS if quick else SEEDS
    result = _checked(subject, seeds, as_json=as_json)
    if live:
        result.findings.append(_live(subject, name_or_class, out))
        if not as_json:
            _say(result.findings[-1])
    if page is not None:
        write_asked_for("--page", page, _page(result))
        console.say(f"page: {page}")
    if to is not None:
        for path in _write_pictures(result, to):
            console.say(f"picture: {path}")
    _show(result, out, as_json=as_json)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _checked(
    subject: Subject, seeds: tuple[int, ...], *, as_json: bool
) -> _Result:
    """The simulated checks and the tables, under one bar. Each finding is
    printed as it comes, unless ``as_json``.
    """
    from testbed.policy_trials.policy_check import CHECKS, policy_findings
    from testbed.policy_trials.policy_standing import Contest

    contest = Contest(subject.entry, subject.spec, (), seeds)
    # Checks and tables have half of the bar each.
    per_check = max(1, contest.n_runs // len(CHECKS))
    findings = []
    total = per_check * len(CHECKS) + contest.n_runs
    label = f"checking {subject.spec.label}"
    with console.counted(label, total) as advance:
        for finding in policy_findings(subject):
            findings.append(finding)
            advance(per_check)
            if not as_json:
                _say(finding)
        # Made anew: by now the checks know which families of cases the
        # policy plays.
        contest = Contest(
            subject.entry, subject.spec, subject.families, seeds
        )
        for _ in contest.run(console.say):
            advance()
    return _Result(subject, findings, contest.tables())


def _subject(
    name_or_class: str,
    settings: Sequence[str] | None,
    seed: int,
    effort: Effort,
) -> Subject:
    """The policy with its settings. Raises BadInput."""
    from testbed.policy_trials.policy_subject import Subject

    spec = policy_from(name_or_class, Path.cwd())
    entry: dict[str, Any] = {"name": spec.name}
    if spec.plugin is not None:
        entry = {"class": _class(name_or_class)}
    for setting in settings or ():
        key, text = key_and_value(setting, "depth=3")
        entry[key] = _value(setting, text)
    return Subject.of(entry, seed, effort)


def _value(setting: str, text: str) -> Any:
    """A value as an experiment file has it. Raises BadInput."""
    try:
        document = read_document(text, f"--set {setting}")
    except SpecErrors as errors:
        raise _no_value(setting, text, errors.problems) from None
    if document.problems:
        raise _no_value(setting, text, document.problems)
    return document.data


def _no_value(
    setting: str, text: str, problems: Sequence[Problem]
) -> BadInput:
    return BadInput(
        f"--set {setting}: {text!r} is no value that a file could have",
        problems[0].message,
    )


def _class(name_or_class: str) -> str:
    """A class by its file's whole path: counterexamples lie elsewhere."""
    file, _, name = name_or_class.rpartition(":")
    path = Path(file)
    if path.suffix == ".py" and path.exists():
        return f"{path.resolve()}:{name}"
    return name_or_class


def _live(
    subject: Subject, name_or_class: str, out: Path | None
) -> PolicyFinding:
    from testbed.backends.emu.emulation import LiveOptions
    from testbed.cli.run import played_live
    from testbed.policy_trials.policy_check import live, not_run

    if os.geteuid() != 0:
        return not_run(
            f"the live network needs root: sudo testbed policy check {name_or_class} --live"
        )

    def run(experiment: Experiment) -> list[RunRecord]:
        return played_live(experiment, out, LiveOptions())

    return live(subject, run)


def _say(finding: PolicyFinding) -> None:
    line = Text(f"{finding.verdict:<12} ", MARKS[finding.verdict])
    line.append(f"{finding.check:<13} {finding.says}", style="default")
    console.out().print(line, soft_wrap=True)
    console.print_text(f"{'':27}{finding.evidence}")


def _show(result: _Result, out: Path | None, *, as_json: bool) -> None:
    """Tables and counterexamples, which go into ``out`` where that is given."""
    if as_json:
        console.print_json(result)
    else:
        for table in result.tables:
            console.out().print(_table(table))
    for finding in result.findings:
        if finding.counterexample is None:
            continue
        if out is not None:
            name = f"{finding.check.replace(' ', '-')}.yaml"
            path = RunFolder(out, caller()).write_text(
                name, finding.counterexample
            )
            console.say(f"{finding.check}: testbed simulate {path}")
        elif not as_json:
            console.print_text(
                f"\n# {finding.check}: save it, and testbed simulate it"
            )
            console.print_text(finding.counterexample)


def _page(result: _Result) -> str:
    """The findings, counterexamples and tables as HTML."""
    from testbed.policy_trials.check_sentences import (
        check_sentences,
        standing_caption,
    )
    from testbed.report.labels import capital
    from testbed.report.page import rendered

    failed = any(finding.verdict == "failed" for finding in result.findings)
    standings = []
    pictures = _pictures(result)
    for table, picture in zip(result.tables, pictures, strict=True):
        standings.append(
            {
                "title": capital(table.workload),
                "caption": standing_caption(table),
                "rows": [_cells(row) for row in table.rows],
                "picture": picture,
            }
        )
    return rendered(
        "policy_check",
        policy=result.subject.spec.label,
        seed=result.subject.seed,
        mood="bad" if failed else "good",
        sentences=check_sentences(result.findings, result.tables),
        findings=result.findings,
        standings=standings,
        columns=list(_COLUMNS),
    )


def _pictures(result: _Result) -> list[Picture]:
    """A picture for each table."""
    from testbed.policy_trials.standing_pictures import standing_picture

    return [
        standing_picture(table, number)
        for number, table in enumerate(result.tables, 1)
    ]


def _write_pictures(result: _Result, to: Path) -> list[Path]:
    """Writes the tables' pictures as files. Raises BadInput where the folder
    cannot be made.
    """
    from testbed.report.picture_files import picture_files, picture_folder

    folder = picture_folder(to)
    files: list[Path] = []
    for picture in _pictures(result):
        files += picture_files(folder, picture.kind, picture)
    return files


def _number(value: float) -> str:
    return f"{value:,.2f}"


_COLUMNS = {
    "finished": ("finished", lambda value: f"{value:,.0f}"),
    "success": ("success_rate", human_share),
    "mean wait": ("wait_mean_s", human_duration),
    "bounded slowdown": ("bounded_slowdown_mean", _number),
    "VM use": ("vm_utilisation", human_share),
    "makespan": ("makespan_s", human_duration),
    "decision": ("decision_ms", lambda value: f"{value:.3f} ms"),
}


_WITH_INTERVAL = ("success_rate", "wait_mean_s", "bounded_slowdown_mean")


def _title(standing: Standing) -> str:
    n = len(standing.seeds)
    seeds = f"{n} seeds, ± half the 95 % interval" if n > 1 else "one seed"
    return f"{standing.workload}, {seeds}"


def _table(standing: Standing) -> Table:
    table = Table(title=Text(_title(standing)), title_justify="left")
    table.add_column("policy")
    for heading in _COLUMNS:
        table.add_column(heading, justify="right")
    for row in standing.rows:
        style = "bold" if row.own else None
        table.add_row(*map(Text, _cells(row)), style=style)
    return table


def _cells(row: Row) -> list[str]:
    name = f"→ {row.policy}" if row.own else f"  {row.policy}"
    if row.failed is not None:
        return [name, row.failed]
    cells = [name]
    for key, text in _COLUMNS.values():
        cells.append(_cell(key, row.metrics[key], text))
    return cells


def _cell(key: str, value: Estimate | None, text: Any) -> str:
    if value is None:
        return "–"
    if key not in _WITH_INTERVAL or value.half_width is None:
        return str(text(value.mean))
    return f"{text(value.mean)} ± {text(value.half_width)}"


# -- a beginning ---------------------------------------------------------------


@policy.command()
def new(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The policy's name, as patient."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Instead of NAME, here."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a repository for a policy of your own: its tests pass as it is.

    Exit code 2 for a name that is taken or cannot be one, and where the folder
    exists.
    """
    from testbed.policy_trials.policy_template import make

    made = make(name, out or Path(name))
    if as_json:
        files = [str(path.relative_to(made.folder)) for path in made.files]
        console.print_json(
            {"policy": name, "folder": str(made.folder), "files": files}
        )
        return
    console.print_text(
        f"policy {name}: {made.folder}, {number_of(len(made.files), 'file')}"
    )
    console.say(f"next: testbed simulate {made.folder}/by-class.yaml")
    if find_spec("pytest"):
        console.say(
            f"its tests: cd {made.folder} && testbed python -m pytest"
        )
