"""Marks of a class: every student's folders checked, each in processes of its own.

The checks of one submission run in a process of their own with bounded memory and time, which
itself confines the student's code: what a submission does costs that submission's marks alone. Each
outcome is written as soon as it is there, and kept while submission, checks and layers stay.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
import os
import re
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from testbed.errors import BadInput, MachineCannot, TestbedError
from testbed.labs import sandbox
from testbed.labs.checked_folder import live_network
from testbed.labs.checking import LAYERS, LIVE, Check, Layer, Network, Outcome, run_checks
from testbed.labs.lab_catalogue import Lab, lab
from testbed.labs.student_folder import RECORD, opened
from testbed.labs.submission import CodeFailed, Submission, printable, small_text
from testbed.results.folder import RunFolder

CSV, JSON, HTML, OUTCOMES = "marks.csv", "marks.json", "marks.html", "outcomes"
OFFLINE = "graded offline"
NOTHING = "nothing handed in"
LAB_FOLDER = re.compile(r"lab-(\d\d)-.*")

LONGEST_S: dict[bool, float] = {False: 150.0, True: 420.0}
"""Longest wait for a check's outcome, offline and live: the network starts within the first."""
TO_END_S = 60.0
MORE_MEMORY_BYTES = 3 << 30
"""Address space that offline checks may take beyond what their process has when it is forked: a
notebook's or a service's may be larger than all that checks need."""


@dataclass(frozen=True)
class Entry:
    """A student's folder of one lab; None and the reason where there is none to check."""

    student: str
    lab: Lab
    folder: Path | None
    problem: str = ""


@dataclass(frozen=True)
class Mark:
    """Outcomes of one student's lab, as in ``lab check --json``; or why it has not been checked."""

    student: str
    lab: int
    points: int
    checks: tuple[dict[str, Any], ...] = ()
    problem: str = ""

    @property
    def earned(self) -> int:
        return sum(one["earned"] for one in self.checks)

    @property
    def not_run(self) -> int:
        """Points of checks that this grading left out."""
        return sum(one["points"] for one in self.checks if one["verdict"] == "not run")

    @property
    def sentence(self) -> str:
        """The first failure's."""
        failed = (one["sentence"] for one in self.checks if one["verdict"] == "failed")
        return self.problem or next(failed, "")

    @property
    def graded(self) -> bool:
        return self.problem in ("", NOTHING)

    def of_layer(self, layer: Layer) -> int | None:
        """Points earned in a layer; None where no check of it ran."""
        ran = [
            one["earned"]
            for one in self.checks
            if one["layer"] == layer and one["verdict"] != "not run"
        ]
        return sum(ran) if ran else None

    def to_json(self) -> dict[str, Any]:
        layers = {layer: self.of_layer(layer) for layer in LAYERS}
        more = {"earned": self.earned, "not_run": self.not_run, "layers": layers}
        return asdict(self) | more | {"sentence": self.sentence}


# -- the class's folder


def entries(
    class_folder: Path, numbers: Sequence[int] = (), leave: Path | None = None
) -> list[Entry]:
    """Every student with every lab: those of ``numbers``, or all that somebody has handed in.

    ``leave`` is no student's folder. Raises BadInput.
    """
    if (class_folder / RECORD).exists():
        raise BadInput(f"{class_folder} is one student's folder", "name the folder that holds it")
    try:
        items = sorted(class_folder.iterdir())
    except OSError as error:
        raise BadInput(f"{class_folder}: {error.strerror}", "name a class's folder") from None
    found = {
        item: _labs_of(item)
        for item in items
        if not item.name.startswith(".")
        and (item.is_symlink() or item.is_dir())
        and (leave is None or item.resolve() != leave.resolve())
    }
    wanted = sorted(
        set(numbers) or {number for labs in found.values() for number in labs if number}
    )
    if not wanted:
        raise BadInput(f"{class_folder}: no student's folder holds a lab", "see docs/labs.md")
    labs = [lab(number) for number in wanted]
    return [_entry(item, one, found[item]) for item in found for one in labs]


Found = dict[int, Path | str]
"""The folder of each lab, or what is wrong with it; under 0 what is wrong with all."""


def _entry(item: Path, of: Lab, found: Found) -> Entry:
    here = found.get(of.number, found.get(0, NOTHING))
    student = printable(os.fsencode(item.name).decode(errors="backslashreplace"))
    if isinstance(here, str):
        return Entry(student, of, None, printable(here))
    return Entry(student, of, here)


def _labs_of(student: Path) -> Found:
    if student.is_symlink():
        return {0: "the folder is a symbolic link"}
    try:
        if os.path.lexists(student / RECORD):
            return {_number(student): student}
        folders = sorted(one for one in student.iterdir() if one.is_symlink() or one.is_dir())
    except BadInput as error:
        return {0: error.message}
    except OSError as error:
        return {0: f"the folder cannot be read: {error.strerror}"}
    found: Found = {}
    for folder in folders:
        _add(found, folder)
    return found or {0: "the folder holds no lab"}


def _add(found: Found, folder: Path) -> None:
    named = LAB_FOLDER.fullmatch(folder.name)
    try:
        if folder.is_symlink():
            raise BadInput(f"{folder.name} is a symbolic link")  # noqa: TRY301
        if named is None and not os.path.lexists(folder / RECORD):
            return
        number = _number(folder)
        twice = isinstance(found.get(number), Path)
        found[number] = f"there are two folders of lab {number}" if twice else folder
    except (BadInput, OSError) as error:
        if named is not None:
            found.setdefault(int(named[1]), str(error))


def _number(folder: Path) -> int:
    return opened(folder).lab.number


# -- marks


def marks(
    every: Sequence[Entry], out: RunFolder, *, live: bool, again: bool = False
) -> Iterator[Mark]:
    """Each entry's mark, as soon as it is there. Raises MachineCannot, BadInput."""
    if why := sandbox.unavailable():
        raise MachineCannot(f"submissions cannot be confined here: {why}", sandbox.INSTALL)
    out.make()
    if live:
        for of in {entry.lab for entry in every}:
            _keep_to_the_owner(of)
    # Once, for all the processes that run checks.
    import hypothesis.strategies  # noqa: F401

    for entry in every:
        if entry.folder is None:
            yield _empty(entry, entry.problem)
            continue
        name = f"{OUTCOMES}/{entry.lab.number:02}-{_short(entry.student)}.json"
        digest = _digest(entry, entry.folder, live=live)
        mark = None if again else _kept(out.path / name, digest)
        if mark is None:
            mark = _graded(entry, entry.folder, live=live)
            if not mark.problem:
                out.write_json(name, {"digest": digest, "mark": asdict(mark)})
        yield mark


def _keep_to_the_owner(of: Lab) -> None:
    """Takes others' rights to the lab's answers: on the wire a student's program may read files."""
    for path in (of.path("solution"), of.path("wrong.yaml")):
        if path.exists():
            path.chmod(path.stat().st_mode & 0o700)


def _empty(entry: Entry, problem: str) -> Mark:
    points = sum(check.points for check in entry.lab.checks)
    return Mark(entry.student, entry.lab.number, points, problem=problem)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _digest(entry: Entry, folder: Path, *, live: bool) -> str:
    """Of what a mark depends on: the files handed in, the lab's checks and networks, the layers."""
    texts = [entry.student, str(live)]
    network = [entry.lab.path(entry.lab.network)] if entry.lab.network else []
    for path in sorted([*entry.lab.folder.glob("*.py"), entry.lab.path("lab.yaml"), *network]):
        texts += [path.name, path.read_text("utf-8")]
    for file in entry.lab.files:
        try:
            texts += [file, small_text(folder, file)]
        except CodeFailed as failed:
            texts += [file, "", str(failed)]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _kept(path: Path, digest: str) -> Mark | None:
    """The mark of an earlier call, if it is of the same."""
    try:
        record = json.loads(path.read_text("utf-8"))
        if record["digest"] != digest:
            return None
        return Mark(**record["mark"] | {"checks": tuple(record["mark"]["checks"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _graded(entry: Entry, folder: Path, *, live: bool) -> Mark:
    """Runs the checks in a process of their own. Raises MachineCannot."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    process = fork.Process(target=_work, args=(send, entry.lab, folder, live))
    due = [check for layer in LAYERS for check in entry.lab.checks if check.layer == layer]
    outcomes: list[Outcome] = []
    try:
        _start(process)
        send.close()
        for check in due:
            got = _next(receive, check)
            if isinstance(got, MachineCannot):
                raise got
            if isinstance(got, TestbedError):
                return _empty(entry, f"not graded: {got.message}")
            outcomes.append(got)
            if got.sentence == _late(check):
                left = due[len(outcomes) :]
                outcomes += [
                    Outcome(one.name, one.layer, "not reached", one.points, "an earlier check hung")
                    for one in left
                ]
                break
    finally:
        receive.close()
        _end(process)
    checks = tuple(outcome.to_json() for outcome in outcomes)
    return Mark(entry.student, entry.lab.number, sum(one.points for one in due), checks)


def _start(process: BaseProcess) -> None:
    """Holds Ctrl-C back meanwhile: Python loses an interrupt that comes while it forks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next(receive: Connection, check: Check) -> Outcome | TestbedError:
    if not receive.poll(LONGEST_S[check.layer in LIVE]):
        return Outcome(check.name, check.layer, "failed", check.points, _late(check))
    try:
        got: Outcome | TestbedError = receive.recv()
    except EOFError:
        return TestbedError("the process of the checks has ended")
    return got


def _late(check: Check) -> str:
    return f"the check had not ended after {LONGEST_S[check.layer in LIVE]:g} s"


def _end(process: BaseProcess) -> None:
    """Asks it to end, so that it takes its network down; it ended long ago as a rule."""
    if process.pid is None:
        return
    process.join(0.2)
    if process.is_alive():
        os.kill(process.pid, signal.SIGINT)
        process.join(TO_END_S)
        process.kill()
    process.join()
    process.close()


def _work(send: Connection, of: Lab, folder: Path, live: bool) -> None:
    """Sends the outcomes of a submission's checks, or the error that ended them."""
    # Ctrl-C is the grading process's to pass on, once.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + MORE_MEMORY_BYTES
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    # A controller that a student wrote runs as who called sudo: here as nobody.
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        os.environ.pop(name, None)
    network = _unbounded(live_network(of), before) if live else OFFLINE
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for outcome in run_checks(of.checks, Submission(folder, of.files), network=network):
            send.send(outcome)
    except TestbedError as error:
        with suppress(OSError):
            send.send(error)
    except (KeyboardInterrupt, BrokenPipeError):
        pass


def _unbounded(network: Network | str, before: tuple[int, int]) -> Network | str:
    """The network's processes are not the checks'."""
    if isinstance(network, str):
        return network
    bring_up = network

    def up() -> AbstractContextManager[Any]:
        resource.setrlimit(resource.RLIMIT_AS, before)
        return bring_up()

    return up


# -- the tables


def write_tables(out: RunFolder, title: str, found: Sequence[Mark]) -> None:
    """``marks.csv``, ``marks.json`` and ``marks.html``, each whole or not at all."""
    from testbed.report.page import rendered

    out.write_text(CSV, table(found))
    out.write_json(JSON, [mark.to_json() for mark in found])
    labs = {number: lab(number) for number in sorted({mark.lab for mark in found})}
    students: dict[str, dict[int, Mark]] = {}
    for mark in found:
        students.setdefault(mark.student, {})[mark.lab] = mark
    page = rendered("marks", title=printable(title), labs=labs, students=students, layers=LAYERS)
    out.write_text(HTML, page)


def table(found: Sequence[Mark]) -> str:
    """A row per student and lab, in CSV; empty: no check of that layer ran."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["student", "lab", "earned", "points", "not_run", *LAYERS, "sentence"])
    for mark in found:
        layers = ["" if (n := mark.of_layer(layer)) is None else n for layer in LAYERS]
        counts = [mark.lab, mark.earned, mark.points, mark.not_run, *layers]
        rows.writerow([_cell(mark.student), *counts, _cell(mark.sentence)])
    return text.getvalue()


def _cell(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    line = " ".join(text.split())
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
