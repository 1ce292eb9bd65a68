"""Marks of a class: every student's folders checked, each in its own process.

The checks of one submission run in a process of their own with bounded memory
and time, which itself confines the student's code: what a submission does costs
that submission's marks alone. Each outcome is written as soon as it is there,
and kept while submission, checks and layers stay.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from testbed.errors import BadInput, MachineCannot, TestbedError
from testbed.foreign_text import csv_text
from testbed.labs import sandbox
from testbed.labs.checked_folder import live_network
from testbed.labs.checking import (
    LAYERS,
    LIVE,
    BringUp,
    Check,
    CheckOutcome,
    Layer,
    run_checks,
)
from testbed.labs.lab_catalogue import Lab, lab, labs
from testbed.labs.student_folder import RECORD, opened
from testbed.labs.submission import (
    CodeFailed,
    Submission,
    printable,
    small_text,
)
from testbed.owned_files import without_links
from testbed.record.folder import RunFolder

CSV = "marks.csv"
JSON = "marks.json"
HTML = "marks.html"
OUTCOMES = "outcomes"
OFFLINE = "graded offline"
NOTHING = "nothing handed in"
ARCHIVES = (
    ".zip",
    ".tar",
    ".gz",
    ".tgz",
    ".bz2",
    ".xz",
    ".zst",
    ".7z",
    ".rar",
)
LAB_FOLDER = re.compile(r"lab-(\d\d)-.*")

# Longest wait for a check's outcome. The network starts within the first of
# the live checks.
OFFLINE_S = 150.0
LIVE_S = 420.0
TO_END_S = 60.0
# Address space of offline checks beyond their process's when it is forked. A
# notebook's or a service's process may be larger than all that checks need.
MORE_MEMORY_BYTES = 3 << 30


@dataclass(frozen=True)
class HandedIn:
    """A student's folder of one lab. ``problem``: why there is none."""

    student: str
    lab: Lab
    folder: Path | None
    problem: str = ""


@dataclass(frozen=True)
class Mark:
    """Outcomes of one student's lab, as in ``lab check --json``.

    ``problem``: why it has not been checked, or not to the end.
    """

    student: str
    lab: int
    points: int
    checks: tuple[dict[str, Any], ...] = ()
    problem: str = ""

    @property
    def earned(self) -> int:
        return sum(check["earned"] for check in self.checks)

    @property
    def not_run(self) -> int:
        """Points of checks that this grading left out."""
        return sum(check["points"] for check in self._with("not run"))

    @property
    def sentence(self) -> str:
        """The problem, or the sentence of the first failure."""
        if self.problem:
            return self.problem
        for check in self._with("failed"):
            return str(check["sentence"])
        return ""

    @property
    def graded(self) -> bool:
        return self.problem in ("", NOTHING)

    def _with(self, verdict: str) -> list[dict[str, Any]]:
        return [
            check for check in self.checks if check["verdict"] == verdict
        ]

    def of_layer(self, layer: Layer) -> int | None:
        """Points earned in a layer; None where no check of it ran."""
        earned = None
        for check in self.checks:
            if check["layer"] == layer and check["verdict"] != "not run":
                earned = (earned or 0) + check["earned"]
        return earned

    def to_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["earned"] = self.earned
        record["not_run"] = self.not_run
        record["layers"] = {layer: self.of_layer(layer) for layer in LAYERS}
        record["sentence"] = self.sentence
        return record


# -- the class's folder


# Number of a lab -> a student's folder of it, or what is wrong with it. Under
# 0: what is wrong with all.
LabFolders = dict[int, Path | str]


def handed_in(
    class_folder: Path,
    numbers: Sequence[int] = (),
    leave: Path | None = None,
) -> list[HandedIn]:
    """Every student with every lab: those of ``numbers``, or all handed in.

    ``leave``: a folder among the students' that is none, as that of the marks.
    Raises BadInput.
    """
    if (class_folder / RECORD).exists():
        raise BadInput(
            f"{class_folder} is one student's folder",
            "name the folder that holds it",
        )
    students: dict[Path, LabFolders] = {}
    for folder in _student_folders(class_folder, leave):
        students[folder] = _labs_of(folder, numbers)
    wanted = set(numbers)
    if not wanted:
        wanted.update(*students.values())
        # No lab: what is wrong with a whole folder.
        wanted.discard(0)
    if not wanted:
        hint = "see docs/labs.md"
        archives = _archives(_items(class_folder))
        if archives:
            hint = f"unpack {archives}"
        raise BadInput(
            f"{class_folder}: no student's folder holds a lab", hint
        )
    labs = list(map(lab, sorted(wanted)))
    entries = []
    for student, folders in students.items():
        for graded_lab in labs:
            entries.append(_handed_in(student, graded_lab, folders))
    return entries


NOBODYS = ("__MACOSX",)
"""Folders that archives bring along."""


def passed_over(class_folder: Path) -> list[str]:
    """The class's files, which are no student's folder: an archive may hold one,
    and is to be unpacked. Raises BadInput.
    """
    files = []
    for item in _items(class_folder):
        if _is_folder_or_link(item):
            continue
        remedy = ""
        if _is_archive(item):
            remedy = " (unpack it)"
        files.append(f"{_shown_name(item)}{remedy}")
    return files


def _items(class_folder: Path) -> list[Path]:
    """All in the class's folder but what is hidden and :data:`NOBODYS`."""
    try:
        items = sorted(class_folder.iterdir())
    except OSError as error:
        raise BadInput(
            f"{class_folder}: {error.strerror}", "name a class's folder"
        ) from None
    return [
        item
        for item in items
        if not item.name.startswith(".") and item.name not in NOBODYS
    ]


def _student_folders(class_folder: Path, leave: Path | None) -> list[Path]:
    left_out = None if leave is None else without_links(leave)
    folders = []
    for item in _items(class_folder):
        if _is_folder_or_link(item) and without_links(item) != left_out:
            folders.append(item)
    return folders


def _is_archive(path: Path) -> bool:
    # A Mac adds hidden files of an archive's name.
    named = path.suffix.lower() in ARCHIVES and path.name[0] != "."
    return named and path.is_file()


def _archives(items: Iterable[Path]) -> str:
    return ", ".join(
        _shown_name(item) for item in items if _is_archive(item)
    )


def _shown_name(path: Path) -> str:
    # A name on disk is bytes, and what a student calls a file is printed.
    name = os.fsencode(path.name).decode(errors="backslashreplace")
    return printable(name)


def _is_folder_or_link(path: Path) -> bool:
    # A link is not followed, and not passed over either: it is reported.
    return path.is_symlink() or path.is_dir()


def _handed_in(
    student: Path, graded_lab: Lab, folders: LabFolders
) -> HandedIn:
    folder = folders.get(graded_lab.number, folders.get(0, NOTHING))
    name = _shown_name(student)
    if isinstance(folder, str):
        return HandedIn(name, graded_lab, None, printable(folder))
    return HandedIn(name, graded_lab, folder)


def _labs_of(student: Path, wanted: Sequence[int]) -> LabFolders:
    if student.is_symlink():
        return {0: "the folder is a symbolic link"}
    try:
        if os.path.lexists(student / RECORD):
            return {_number(student): student}
        items = sorted(student.iterdir())
        subfolders = list(filter(_is_folder_or_link, items))
        archives = _archives(items)
    except (BadInput, OSError) as error:
        return {0: _reading_problem(error)}
    folders: LabFolders = {}
    for item in subfolders:
        if item.name not in NOBODYS:
            _add_lab(folders, item, wanted)
    if not folders:
        folders.update(dict.fromkeys(_meant(student, wanted), student))
    if folders:
        return folders
    problem = "the folder holds no lab"
    if archives:
        problem += f": unpack {archives}"
    return {0: problem}


def _reading_problem(error: BadInput | OSError) -> str:
    if isinstance(error, BadInput):
        return error.message
    return f"the folder cannot be read: {error.strerror}"


def _meant(folder: Path, wanted: Sequence[int]) -> list[int]:
    """Labs that an upload without a record is an answer to.

    It has every file of them. Where one lab alone is ``wanted``, any file of it
    is enough.
    """
    meant = []
    for known in labs():
        n_present = 0
        for name in known.files:
            path = folder / name
            n_present += path.is_file() and not path.is_symlink()
        enough = len(known.files)
        if list(wanted) == [known.number]:
            enough = 1
        if n_present >= enough:
            meant.append(known.number)
    return meant


def _add_lab(
    folders: LabFolders, folder: Path, wanted: Sequence[int]
) -> None:
    """Adds a folder by the number that it records, or by the files in it.

    One that is damaged counts as the lab that its name says, if there is such
    a lab.
    """
    match = LAB_FOLDER.fullmatch(folder.name)
    known_numbers = [known.number for known in labs()]
    if match is not None and int(match[1]) not in known_numbers:
        match = None
    try:
        if folder.is_symlink():
            raise BadInput(f"{folder.name} is a symbolic link")  # noqa: TRY301
        numbers = _meant(folder, wanted)
        # A link that leads nowhere is a record too, and is refused as one.
        if os.path.lexists(folder / RECORD):
            numbers = [_number(folder)]
        if not numbers and match is not None:
            raise BadInput(f"{folder.name} has no answer of a lab")  # noqa: TRY301
    except (BadInput, OSError) as error:
        if match is not None:
            folders.setdefault(int(match[1]), str(error))
        return
    for number in numbers:
        repeated = f"there are two folders of lab {number}"
        earlier = folders.get(number)
        # A third one is no more the answer than the first two.
        if isinstance(earlier, Path) or earlier == repeated:
            folders[number] = repeated
        else:
            folders[number] = folder


def _number(folder: Path) -> int:
    return opened(folder).lab.number


# -- marks


def marks(
    entries: Sequence[HandedIn],
    out: RunFolder,
    *,
    live: bool,
    again: bool = False,
) -> Iterator[Mark]:
    """Each entry's mark, as soon as it is there.

    Raises MachineCannot, BadInput.
    """
    reason = sandbox.unavailable()
    if reason:
        raise MachineCannot(
            f"submissions cannot be confined here: {reason}",
            sandbox.INSTALL,
        )
    out.make()
    if live:
        for graded_lab in {entry.lab for entry in entries}:
            _keep_to_the_owner(graded_lab)
    # Once, for all the processes that run checks.
    import hypothesis.strategies  # noqa: F401

    for entry in entries:
        if entry.folder is None:
            yield _empty(entry, entry.problem)
        else:
            yield _mark(entry, entry.folder, out, live=live, again=again)


def _mark(
    entry: HandedIn,
    folder: Path,
    out: RunFolder,
    *,
    live: bool,
    again: bool,
) -> Mark:
    """The mark of an earlier call if all that it depends on is the same, else a
    new one.
    """
    # The file's name has a hash of the student's, which may be any bytes.
    student = hashlib.sha256(entry.student.encode()).hexdigest()[:20]
    name = f"{OUTCOMES}/{entry.lab.number:02}-{student}.json"
    digest = _digest(entry, folder, live=live)
    mark = None
    if not again:
        mark = _kept(out.path / name, digest)
    if mark is None:
        mark = _graded(entry, folder, live=live)
        # A problem may be gone the next time.
        if not mark.problem:
            out.write_json(name, {"digest": digest, "mark": asdict(mark)})
    return mark


def _keep_to_the_owner(graded_lab: Lab) -> None:
    """Takes others' rights to the lab's answers.

    On the wire a student's program may read files.
    """
    for name in ("solution", "wrong.yaml"):
        path = graded_lab.path(name)
        if path.exists():
            path.chmod(path.stat().st_mode & 0o700)


def _empty(entry: HandedIn, problem: str) -> Mark:
    points = sum(check.points for check in entry.lab.checks)
    return Mark(entry.student, entry.lab.number, points, problem=problem)


def _digest(entry: HandedIn, folder: Path, *, live: bool) -> str:
    """Digest of all that a mark depends on.

    The files handed in, the layers, and the lab's files: its checks read those
    of ``start/`` and networks, too.
    """
    texts = [entry.student, str(live)]
    for path in _files_of_checks(entry.lab):
        # Names, too: else text could move from one file to the next unseen.
        name = str(path.relative_to(entry.lab.folder))
        texts += [name, hashlib.sha256(path.read_bytes()).hexdigest()]
    for file in entry.lab.files:
        texts.append(file)
        try:
            texts.append(small_text(folder, file))
        except CodeFailed as failed:
            texts += ["", str(failed)]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


# Of a lab's folder: what no mark depends on.
NOT_OF_CHECKS = (
    "page.md",
    "hints.md",
    "instructor.md",
    "wrong.yaml",
    "solution",
)


def _files_of_checks(graded_lab: Lab) -> list[Path]:
    """The lab's files without those that are for people, and without Python's
    own.
    """
    files = []
    for path in sorted(graded_lab.folder.rglob("*")):
        parts = path.relative_to(graded_lab.folder).parts
        if parts[0] in NOT_OF_CHECKS or "__pycache__" in parts:
            continue
        if path.is_file():
            files.append(path)
    return files


def _kept(path: Path, digest: str) -> Mark | None:
    """The stored mark, if all that it depends on has this digest."""
    try:
        record = json.loads(path.read_text("utf-8"))
        if record["digest"] != digest:
            return None
        fields = record["mark"]
        fields["checks"] = tuple(fields["checks"])
        return Mark(**fields)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _graded(entry: HandedIn, folder: Path, *, live: bool) -> Mark:
    """Runs the checks in a process of their own. Points that were earned before
    that process fails stay earned. Raises MachineCannot.
    """
    # By fork: checks are functions of files in a folder, which do not pickle.
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    process = fork.Process(
        target=_work, args=(send, entry.lab, folder, live)
    )
    due = _in_order(entry.lab.checks)
    outcomes: list[CheckOutcome] = []
    problem = ""
    try:
        _start(process)
        # So that the end of the process is the end of the pipe.
        send.close()
        # Those that came before an error are kept.
        outcomes.extend(_outcomes(receive, due, live=live))
    except MachineCannot:
        raise
    except TestbedError as error:
        problem = f"not graded: {error.message}"
        for check in due[len(outcomes) :]:
            outcomes.append(check.outcome("not run", problem))
    finally:
        # The pipe first: a process that still has outcomes to send ends on
        # it.
        receive.close()
        _end(process)
    points = sum(check.points for check in due)
    checks = tuple(outcome.to_json() for outcome in outcomes)
    return Mark(entry.student, entry.lab.number, points, checks, problem)


def _in_order(checks: Sequence[Check]) -> list[Check]:
    """Checks as they run, and as their outcomes come: layer after layer."""
    return sorted(checks, key=lambda check: LAYERS.index(check.layer))


def _outcomes(
    receive: Connection, due: Sequence[Check], *, live: bool
) -> Iterator[CheckOutcome]:
    """The outcomes of all checks, as they come; a check that hangs is the last
    that runs.

    Raises the error that the process sends in place of one.
    """
    for number, check in enumerate(due):
        longest_s = LIVE_S if check.layer in LIVE else OFFLINE_S
        if not receive.poll(longest_s):
            late = f"the check had not ended after {longest_s:g} s"
            yield check.outcome("failed", late)
            # The process still hangs: no later check would have its turn.
            for unreached in due[number + 1 :]:
                if unreached.layer in LIVE and not live:
                    yield unreached.outcome("not run", OFFLINE)
                else:
                    sentence = "an earlier check hung"
                    yield unreached.outcome("not reached", sentence)
            return
        yield _received(receive)


def _received(receive: Connection) -> CheckOutcome:
    try:
        message: CheckOutcome | TestbedError = receive.recv()
    except EOFError:
        message = TestbedError("the process of the checks has ended")
    if isinstance(message, TestbedError):
        raise message
    return message


def _start(process: BaseProcess) -> None:
    """Starts a process with Ctrl-C held back meanwhile.

    Python loses an interrupt that comes while it forks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: BaseProcess) -> None:
    """Asks a process to end, so that it takes its network down, and waits.

    As a rule it ended long ago.
    """
    if process.pid is None:
        return
    process.join(0.2)
    # As by Ctrl-C: blocks that hold a network end.
    if process.is_alive():
        os.kill(process.pid, signal.SIGINT)
        process.join(TO_END_S)
        process.kill()
    process.join()
    process.close()


def _work(
    send: Connection,
    graded_lab: Lab,
    folder: Path,
    live: bool,
) -> None:
    """Sends the outcomes of a submission's checks, or the error that ended it."""
    _detach()
    limit = _bound_memory()
    # A controller that a lab's network file leaves unconfined runs as who called
    # sudo: here as nobody.
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        os.environ.pop(name, None)
    network: BringUp | str = OFFLINE
    if live:
        network = _unbounded(live_network(graded_lab), limit)
    submission = Submission(folder, graded_lab.files)
    try:
        # SIGINT has been blocked since before the fork: from here on it ends
        # this block.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for outcome in run_checks(
            graded_lab.checks, submission, network=network
        ):
            send.send(outcome)
    except TestbedError as error:
        with suppress(OSError):
            send.send(error)
    except (KeyboardInterrupt, BrokenPipeError):
        pass


def _detach() -> None:
    """Leaves the terminal: its Ctrl-C is the grading process's to pass on."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null_fd = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null_fd, descriptor)


def _bound_memory() -> tuple[int, int]:
    """Bounds the address space of this process; returns the limit before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    _, hard = before
    # Beyond what is mapped at the fork: a limit below that would fail its
    # next allocation.
    most = psutil.Process().memory_info().vms + MORE_MEMORY_BYTES
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    return before


def _unbounded(
    network: BringUp | str,
    limit: tuple[int, int],
) -> BringUp | str:
    """The network, brought up under the earlier limit, which its processes
    inherit.
    """
    if isinstance(network, str):
        return network

    def bring_up() -> AbstractContextManager[Any]:
        resource.setrlimit(resource.RLIMIT_AS, limit)
        return network()

    return bring_up


# -- the tables


def write_tables(
    out: RunFolder,
    title: str,
    graded: Sequence[Mark],
) -> None:
    """Writes marks.csv, marks.json, marks.html and its picture's files, each
    whole or not at all.
    """
    from testbed.labs.mark_pictures import marks_picture, marks_sentences
    from testbed.report.page import rendered
    from testbed.report.picture_files import picture_files

    out.write_text(CSV, table(graded))
    out.write_json(JSON, [mark.to_json() for mark in graded])
    numbers = sorted({mark.lab for mark in graded})
    students: dict[str, dict[int, Mark]] = {}
    for mark in graded:
        students.setdefault(mark.student, {})[mark.lab] = mark
    picture = marks_picture(graded)
    if picture is not None:
        picture_files(out, picture.kind, picture)
    page = rendered(
        "marks",
        picture=picture,
        sentences=marks_sentences(graded),
        mood="open" if all(mark.graded for mark in graded) else "doubt",
        title=printable(title),
        labs={number: lab(number) for number in numbers},
        students=students,
        layers=LAYERS,
    )
    out.write_text(HTML, page)


def table(graded: Iterable[Mark]) -> str:
    """A row per student and lab, in CSV; empty: no check of that layer ran."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        [
            "student",
            "lab",
            "earned",
            "points",
            "not_run",
            *LAYERS,
            "sentence",
        ]
    )
    for mark in graded:
        row = [_cell(mark.student), mark.lab, mark.earned, mark.points]
        row.append(mark.not_run)
        # The writer leaves a cell empty for None.
        row += map(mark.of_layer, LAYERS)
        row.append(_cell(mark.sentence))
        rows.writerow(row)
    return text.getvalue()


def _cell(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    return csv_text(" ".join(text.split()))
