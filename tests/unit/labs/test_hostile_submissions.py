"""Submissions that mean harm, or do it: each costs its own marks, and leaves nothing."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from testbed import private_folders
from testbed.labs import grading, lab_catalogue, sandbox, submission
from testbed.labs.grading import HandedIn, Mark
from testbed.labs.submission_process import MOST_LEVELS, check_levels
from testbed.record.folder import RunFolder
from tests.support import small_lab

pytestmark = [
    pytest.mark.skipif(
        bool(sandbox.unavailable()), reason=sandbox.unavailable()
    ),
    pytest.mark.slow,
    # As root: who is no root has one way alone.
    pytest.mark.short("root" if os.geteuid() == 0 else "somebody"),
]

SOMEBODY = 31_337
USERS = (
    {"root": 0, "somebody": SOMEBODY}
    if os.geteuid() == 0
    else {"somebody": os.geteuid()}
)
AS_SOMEBODY = ("forks", "lists other processes")
"""Cases that the short form tries by another user, too."""


def of_both_users(*cases: str) -> pytest.MarkDecorator:
    """Keeps these cases in the short form, as ids that begin so."""
    first = next(iter(USERS))
    ids = [f"{first}-{case}" for case in cases]
    for case in AS_SOMEBODY:
        ids.append(f"somebody-{case}")
    return pytest.mark.short(*ids)


class Class:
    """A class of two: ``good`` and ``hostile``, graded by one user."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.folder, self.uid = folder, uid
        self.students = folder / "class"
        small_lab.make(folder / "labs")
        small_lab.hand_in(self.students / "good")

    def hand_in(self, code: str | None) -> Path:
        return (
            small_lab.hand_in(self.students / "hostile", code)
            / small_lab.FILE
        )

    def graded(self) -> Mark:
        """The hostile student's mark; the other's is full, and nothing is left."""
        if self.uid:
            for path in (self.students, *self.students.rglob("*")):
                os.chown(path, self.uid, self.uid, follow_symlinks=False)

        def work() -> list[Mark]:
            entries = grading.handed_in(self.students)
            return list(
                grading.marks(
                    entries, RunFolder(self.folder / "out"), live=False
                )
            )

        good, hostile = small_lab.as_user(self.uid, work)
        assert (good.student, good.earned, good.not_run) == ("good", 4, 2)
        assert hostile.student == "hostile"
        assert list((self.folder / "tmp").iterdir()) == []
        until = time.monotonic() + 60
        while found := self.left():
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return hostile

    def left(self) -> list[str]:
        """Processes with a mount of ours: in the submissions' namespaces, and here."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                mounts = (process / "mountinfo").read_text()
            except OSError:
                continue
            if str(self.folder) in mounts:
                found.append(process.name)
        return found


@pytest.fixture(params=USERS)
def two(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Class]:
    # Not pytest's folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="hosenet-class-"))
    for path in (folder, folder / "tmp", folder / "labs"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    monkeypatch.setattr(lab_catalogue, "LABS", folder / "labs")
    # In the shared folder, which only its names keep apart.
    monkeypatch.setattr(private_folders, "ROOTS_BASE", Path("/proc/none"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/none")
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    # For all who come to an end by themselves, however slow the machine is.
    monkeypatch.setattr(submission, "CALL_S", 60.0)
    lab_catalogue.labs.cache_clear()
    lab_catalogue._checks.cache_clear()
    yield Class(folder, USERS[request.param])
    lab_catalogue.labs.cache_clear()
    lab_catalogue._checks.cache_clear()
    shutil.rmtree(folder)


def limit_of_the_hostile(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
    limit_s: float,
) -> None:
    """A time limit for the hostile student alone: on a busy machine the other
    might need more.
    """
    graded = grading._graded

    def limited(entry: HandedIn, folder: Path, *, live: bool) -> Mark:
        with pytest.MonkeyPatch.context() as patch:
            if entry.student == "hostile":
                patch.setattr(module, name, limit_s)
            return graded(entry, folder, live=live)

    monkeypatch.setattr(grading, "_graded", limited)


HEAD = "import ctypes, math, os, signal, socket, sys, threading, time\n"
FAILING = {
    "hangs": ("while True: pass", "answer had not ended after 3 s"),
    "sleeps": ("time.sleep(99)", "answer had not ended after 3 s"),
    "catches signals": (
        ("[signal.signal(n, lambda *_: None) for n in range(1, 32) if n not in (9, 19)]\n"
        "    while True: pass"),
        "answer had not ended after 3 s",
    ),
    "forks": ("while True: os.fork()", "raised BlockingIOError"),
    "threads": (
        "while True: threading.Thread(target=time.sleep, args=(9,)).start()",
        "raised RuntimeError: can't start new thread",
    ),
    "fills the disk": (
        "for n in range(10**6): open(f'/tmp/{n}', 'wb').write(bytes(10**6))",
        "raised OSError: [Errno 28] No space left on device",
    ),
    "one long file": (
        ("signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    with open('/tmp/x', 'wb') as file:\n"
        "        while True: file.write(bytes(10**6))"),
        "raised OSError: [Errno 27] File too large",
    ),
    "imports numpy": ("import numpy", "imports numpy, and has only Python's standard library here"),
    "imports testbed": ("import testbed", "imports testbed, and has only Python's standard"),
    "imports the checks": ("import small_checks", "imports small_checks, and has only"),
    "writes into the pipe": (
        ("for n in range(3, 30):\n"
        "        try: os.write(n, b'garbage\\n')\n"
        "        except OSError: pass\n"
        "    return 42"),
        "answer wrote into the checker's pipe",
    ),
    "closes the pipe": (
        "os.closerange(0, 64)\n    time.sleep(99)",
        "answer had not ended after 3 s",
    ),
    "long text": ("return 'x' * 10**7", "answer returned more than 1 MiB"),
    "long number": ("return 10**5000", "answer returned what is no number, text, list or dict"),
    "no JSON": ("return {1, 2}", "answer returned what is no number, text, list or dict"),
    "nested": (
        "x = []\n    for _ in range(10**5): x = [x]\n    return x",
        "answer returned a value that is nested too deeply",
    ),
    "nested, with a higher limit": (
        ("sys.setrecursionlimit(10**4)\n"
        "    x = []\n"
        "    for _ in range(4000): x = [x]\n"
        "    return x"),
        "answer returned a value that is nested too deeply",
    ),
    "nested, though json could": (
        "x = []\n    for _ in range(100): x = {'x': [x]}\n    return x",
        "answer returned a value that is nested too deeply",
    ),
    "nan": ("return math.nan", "answer() returned nan; expected a finite number"),
    "infinity": ("return -math.inf", "answer() returned -inf; expected a finite number"),
    "nothing": ("pass", "answer() returned None; expected a number"),
    "text": ("return '\\x1b[2J<b>'", "answer() returned '\\x1b[2J<b>'; expected a number"),
    "half a pair": ("return '\\ud800'", "answer() returned"),
    "an error with half a pair": ("raise ValueError('\\ud800')", "raised ValueError"),
    "an error of a name with orders": (
        "raise type('\\x1b[2J', (Exception,), {})('x')",
        "raised",
    ),
    "stops itself": (
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "answer had not ended after 3 s",
    ),
    "exits": ("sys.exit(0)", "raised SystemExit: 0"),
    "exits at once": ("os._exit(0)", "answer ended the process (exit code 0)"),
    "kills itself": ("os.kill(os.getpid(), 11)", "answer ended the process (SIGSEGV)"),
    "allocates": ("x = [0] * 10**9", "needs more memory than it may have"),
    "allocates bit by bit": (
        "x = []\n    while True: x.append(bytearray(10**6))",
        "needs more memory than it may have",
    ),
    "allocates in files without names": (
        "while True: os.memfd_create('x')",
        "raised PermissionError",
    ),
    "an error that cannot be shown": (
        "class E(Exception): __str__ = lambda self: 1 / 0\n    raise E",
        "raised E",
    ),
    "an error with orders for a terminal": (
        "raise ValueError('\\x1b[2Jcleared')",
        "raised ValueError: cleared",
    ),
    "changes its own file": ("open(__file__, 'w')", "raised OSError: [Errno 30] Read-only file"),
    "writes among the devices": ("open('/dev/x', 'w')", "raised OSError: [Errno 30] Read-only"),
    "wrong": ("return 41", "answer() returned 41; expected 42 (see README.md, 'One')"),
}  # fmt: skip


@of_both_users(
    "hangs",
    "forks",
    "fills the disk",
    "imports testbed",
    "writes into the pipe",
    "long text",
    "nested, though json could",
    "nan",
    "half a pair",
    "exits at once",
    "allocates bit by bit",
    "an error with orders",
    "changes its own file",
    "wrong",
)
@pytest.mark.parametrize("case", FAILING)
def test_it_fails_with_a_sentence(
    two: Class, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, sentence = FAILING[case]
    if sentence.endswith("after 3 s"):
        limit_of_the_hostile(monkeypatch, submission, "CALL_S", 3.0)
    two.hand_in(f"{HEAD}\n\ndef answer():\n    {code}\n{small_lab.ECHO}")
    mark = two.graded()
    assert sentence in mark.sentence
    assert "\x1b" not in mark.sentence
    # The next check has a process of its own.
    assert (mark.earned, mark.points) == (1, 6)


def test_levels_are_counted() -> None:
    value: object = 42
    for _ in range(MOST_LEVELS // 2):
        value = {"x": (value, 1)}
    check_levels(value)
    with pytest.raises(RecursionError):
        check_levels([value])


HARMLESS = {
    "prints megabytes": "print('x' * 10**8, file=sys.stderr)",
    "floods its descriptors": "os.write(1, b'x' * 10**6); os.write(2, b'x' * 10**6)",
    "leaves processes": "if not os.fork():\n        os.setsid()\n        while True: pass",
    "kills its parent": "os.kill(os.getppid(), 9)",
    "kills all": "if not os.fork(): time.sleep(60)\n    os.kill(-1, 9)",
    "asks for namespaces": "assert ctypes.CDLL(None).unshare(0x10000000)",
    "asks for shared memory": "assert ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600) == -1",
    # AF_VSOCK: of no network namespace.
    "asks for a socket to other machines": (
        "try:\n        socket.socket(40, socket.SOCK_STREAM)\n"
        "    except OSError:\n        pass\n"
        "    else:\n        return 0"
    ),
    "asks for a key ring": (
        "assert ctypes.CDLL(None).syscall(250, 0, -3, 1) == -1"
    ),
    "lists other processes": (
        "assert len([n for n in os.listdir('/proc') if n.isdigit()]) < 4"
    ),
    "finds nothing to write to": (
        "for line in open('/proc/self/mountinfo'):\n"
        "        mount = line.split()[4]\n"
        "        if mount not in ('/tmp', '/dev/shm'):\n"
        "            try: open(f'{mount}/x', 'x')\n"
        "            except OSError: continue\n"
        "            return 0"
    ),
    "has no privileges": (
        "assert 'CapEff:\\t0000000000000000' in open('/proc/self/status').read()"
    ),
}


@of_both_users(
    "prints megabytes",
    "leaves processes",
    "kills all",
    "asks for namespaces",
    "asks for a socket",
    "finds nothing",
    "lists other processes",
)
@pytest.mark.parametrize("case", HARMLESS)
def test_it_does_no_harm(two: Class, case: str) -> None:
    body = f"    {HARMLESS[case]}\n    return 42\n"
    two.hand_in(f"{HEAD}\n\ndef answer():\n{body}{small_lab.ECHO}")
    mark = two.graded()
    assert (mark.sentence, mark.earned) == ("", 4)


def test_the_solution_cannot_be_read(
    two: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All files are looked at: a slow machine takes minutes.
    monkeypatch.setattr(submission, "CALL_S", 300.0)
    monkeypatch.setattr(submission, "CALLS_S", 300.0)
    monkeypatch.setattr(grading, "OFFLINE_S", 400.0)
    here = two.folder / "labs" / "01-small"
    real = lab_catalogue.__file__
    paths = [
        here / "solution" / "answer.py",
        here / "small_checks.py",
        real,
        sandbox.PROGRAM,
    ]
    code = f"""
import glob, os

PATHS = {[str(path) for path in paths]}


def answer():
    every = [p for path in PATHS for p in (path, *(r + path for r in glob.glob("/proc/*/root")))]
    every += [f"{{c}}/{{up}}{{path}}" for c in glob.glob("/proc/*/cwd") for path in PATHS
              for up in ("", "../" * 9)]
    every += [f"/proc/self/fd/{{n}}" for n in os.listdir("/proc/self/fd")]
    for path in every:
        try:
            with open(path, "rb", buffering=0) as file:
                os.set_blocking(file.fileno(), False)
                text = file.read(10**6) or b""
        except OSError:
            continue
        if b"def " in text:
            return path
    for folder, folders, files in os.walk("/"):
        if folder in ("/", "/usr"):
            folders[:] = [name for name in folders if name not in ("proc", "lib")]
        if "solution" in folders or "small_checks.py" in files:
            return folder
    return 42
{small_lab.ECHO}"""
    two.hand_in(code)
    mark = two.graded()
    assert (mark.sentence, mark.earned) == ("", 4)


def test_a_project_below_what_is_mounted_is_hidden(
    two: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "PROJECT", Path("/usr/share"))
    code = "import os\n\n\ndef answer():\n    return 42 + len(os.listdir('/usr/share'))\n"
    two.hand_in(code + small_lab.ECHO)
    assert two.graded().earned == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_python_of_roots_own_is_not_needed(
    two: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyenv's below /root, which nobody else may enter."""
    two.uid = 0
    home = two.folder / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setattr(
        sys, "_base_executable", str(home / "bin" / "python3")
    )
    two.hand_in(small_lab.GOOD)
    assert two.graded().earned == 4


def test_a_large_process_grades_as_a_small_one_does(two: Class) -> None:
    """Its forks have its address space: a notebook's may be more than checks are given."""
    two.hand_in(small_lab.GOOD)
    with mmap.mmap(-1, grading.MORE_MEMORY_BYTES, prot=mmap.PROT_READ):
        assert two.graded().earned == 4


def test_no_socket_reaches_this_machine(two: Class) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"socket.create_connection(('127.0.0.1', {port}), 2)"
        two.hand_in(
            f"{HEAD}\n\ndef answer():\n    {body}\n{small_lab.ECHO}"
        )
        assert "raised ConnectionRefusedError" in two.graded().sentence


def test_time_is_bounded_over_all_calls(
    two: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_of_the_hostile(monkeypatch, submission, "CALLS_S", 4.0)
    two.hand_in("import time\n\n\ndef answer():\n    return 42\n\n\n"
                "def echo(value):\n    time.sleep(0.3)\n    return value\n")  # fmt: skip
    assert (
        two.graded().sentence
        == "answer.py: all calls of one check took more than 4 s"
    )


def test_the_checks_time_is_bounded(
    two: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a value keep the check itself busy."""
    file = two.folder / "labs" / "01-small" / "small_checks.py"
    slow = "    while got == 7: pass\n    if got != 42"
    file.write_text(small_lab.CHECKS.replace("    if got != 42", slow))
    limit_of_the_hostile(monkeypatch, grading, "OFFLINE_S", 8.0)
    two.hand_in(small_lab.GOOD.replace("42", "7"))
    mark = two.graded()
    assert mark.sentence == "the check had not ended after 8 s"
    assert [one["verdict"] for one in mark.checks] == [
        "failed",
        "not reached",
        "not run",
    ]


def test_a_value_that_a_check_did_not_expect(two: Class) -> None:
    file = two.folder / "labs" / "01-small" / "small_checks.py"
    file.write_text(
        small_lab.CHECKS.replace(
            "number_of(submission", "max(submission", 1
        )
    )
    two.hand_in(small_lab.GOOD)
    mark = small_lab.as_user(two.uid, lambda: _mark_of_hostile(two))
    assert mark.sentence.startswith(
        "returned a value that the check cannot use (TypeError: "
    )
    assert mark.earned == 1


def _mark_of_hostile(two: Class) -> Mark:
    entries = [
        one
        for one in grading.handed_in(two.students)
        if one.student == "hostile"
    ]
    (mark,) = grading.marks(
        entries, RunFolder(two.folder / "out"), live=False
    )
    return mark


def _symlink(path: Path) -> None:
    path.symlink_to(
        path.parents[2] / "labs" / "01-small" / "solution" / "answer.py"
    )


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


FILES = {
    "symlink": (_symlink, "is a symbolic link"),
    "fifo": (os.mkfifo, "is no regular file"),
    "folder": (Path.mkdir, "is no regular file"),
    "sparse": (_sparse, "has more than 256 KiB"),
    "no text": (
        lambda path: path.write_bytes(b"\xff\xfe"),
        "is not UTF-8 text",
    ),
    "missing": (lambda _: None, "is not in the folder"),
    "no Python": (
        lambda path: path.write_text("]["),
        ":1: raised SyntaxError",
    ),
    "nul": (lambda path: path.write_text("\0"), "raised"),
}


@of_both_users("fifo", "symlink", "no text")
@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_file(two: Class, kind: str) -> None:
    make, sentence = FILES[kind]
    make(two.hand_in(None))
    mark = two.graded()
    assert re.match(r"answer\.py:", mark.sentence)
    assert sentence in mark.sentence
    assert mark.earned == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_device(two: Class) -> None:
    os.mknod(two.hand_in(None), stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert two.graded().sentence == "answer.py: is no regular file"


FOLDERS = {
    "no record": (None, "the folder holds no lab"),
    "damaged": ("{", "is damaged"),
    "nested": ("[" * 100_000, "is damaged"),
    "a list": ("[]", "is damaged"),
    "no number": ('{"lab": Infinity, "hints": 0}', "is damaged"),
    "another lab": ('{"lab": 77}', "there is no lab 77"),
}


@of_both_users("another lab", "nested")
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_is_no_lab(two: Class, kind: str) -> None:
    answer = two.hand_in(small_lab.GOOD)
    folder = answer.parent
    text, sentence = FOLDERS[kind]
    if text is None:
        # With its answer it would be graded as what it holds.
        answer.unlink()
        (folder / ".lab.json").unlink()
    else:
        (folder / ".lab.json").write_text(text)
    mark = two.graded()
    assert sentence in mark.problem
    assert (mark.earned, mark.points, mark.graded) == (0, 6, False)


def test_a_record_that_never_ends(two: Class) -> None:
    record = two.hand_in(small_lab.GOOD).parent / ".lab.json"
    record.unlink()
    os.mkfifo(record)
    assert "is no regular file" in two.graded().problem


def test_names_that_are_no_text(two: Class) -> None:
    folder = two.students / "hostile" / os.fsdecode(b"lab-01-\xff\x1b")
    small_lab.hand_in(
        folder, "def answer():\n    return '\\ud800'\n"
    ).rename(folder)
    mark = two.graded()
    assert mark.sentence.startswith(
        "answer() returned '\\ud800'; expected a number"
    )
    (folder / ".lab.json").write_text("{")
    grading.write_tables(
        RunFolder(two.folder / "out"), "\udcff", [two.graded()]
    )
    assert "is damaged" in (two.folder / "out" / grading.CSV).read_text()


def test_a_folder_that_is_a_link(two: Class) -> None:
    (two.students / "hostile").symlink_to("good")
    assert two.graded().problem == "the folder is a symbolic link"


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_others_processes_do_not_count(two: Class) -> None:
    """A limit of processes that counted all of the user's would refuse to start."""
    uid = two.uid or sandbox.NOBODY
    others = [
        subprocess.Popen(["sleep", "60"], user=uid, group=uid)
        for _ in range(20)
    ]
    try:
        two.hand_in(small_lab.GOOD)
        assert two.graded().earned == 4
    finally:
        for other in others:
            other.kill()
            other.wait()
