"""A lab of two quick checks, and a class that hands it in: to test the frame around labs."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.labs import lab_catalogue, student_folder

FILE = "answer.py"
CHECKS = """
from hypothesis import strategies as st

from testbed.labs.checking import Check, Wrong, as_call, for_all, number_of

LOOK = "README.md, 'One'"


def answer_is_42(submission):
    got = number_of(submission.call("answer.py", "answer"), "answer()", LOOK)
    if got != 42:
        raise Wrong(f"answer() returned {got:g}", "42", LOOK)


def echo_gives_back(submission):
    def holds(value):
        got = submission.call("answer.py", "echo", value)
        if got != value:
            raise Wrong(f"{as_call('echo', value)} returned {got!r}", f"{value}", LOOK)

    for_all(st.lists(st.integers(0, 99)), holds, number=30)


def on_the_wire(submission, network):
    raise AssertionError("there is no wire here")


CHECKS = (
    Check("answer() is 42", "pure", answer_is_42, 3),
    Check("echo() gives back", "pure", echo_gives_back),
    Check("the wire", "wire", on_the_wire, 2),
)
"""
ECHO = "\n\ndef echo(value):\n    return value\n"
GOOD = f"def answer():\n    return 42\n{ECHO}"
PAGE = "# Small\n\n## One\n\nReturn 42.\n"
HINTS = "## First\n\none\n\n## Second\n\ntwo\n\n## Third\n\nthree\n"


def make(labs: Path) -> lab_catalogue.Lab:
    """The lab's folder, number 1 of those in ``labs``."""
    folder = labs / "01-small"
    (folder / "start").mkdir(parents=True)
    (folder / "solution").mkdir()
    (folder / "lab.yaml").write_text(
        f"title: Small\nminutes: 1\nfiles: [{FILE}]\n"
    )
    (folder / "small_checks.py").write_text(CHECKS)
    (folder / "page.md").write_text(PAGE)
    (folder / "hints.md").write_text(HINTS)
    (folder / "start" / FILE).write_text(
        f"def answer():\n    return 0\n{ECHO}"
    )
    (folder / "solution" / FILE).write_text(GOOD)
    return lab_catalogue.lab(1)


def hand_in(folder: Path, code: str | None = GOOD) -> Path:
    """A student's folder of the lab, with this code; without the file for None."""
    student_folder.make(lab_catalogue.lab(1), folder)
    if code is None:
        (folder / FILE).unlink()
    else:
        (folder / FILE).write_text(code)
    return folder


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """The value of ``work()`` in a process of the user's."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)

    def work_and_send() -> None:
        if uid != os.geteuid():
            # The user last: who is no longer root can change no group.
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        send.send(work())

    process = fork.Process(target=work_and_send)
    process.start()
    # Were it open here too, recv() would wait for a process that has
    # failed.
    send.close()
    try:
        return receive.recv()
    finally:
        process.join()
