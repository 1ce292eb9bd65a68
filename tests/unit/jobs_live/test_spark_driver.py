"""Spark's driver against a package that stands for PySpark, and an agent that starts it."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jobs.live import rank_start, spark_driver

# Of PySpark what the driver asks for.
PYSPARK = """
class Session:
    def getOrCreate(self):
        print("a line of Java's", flush=True)
        return self
    @property
    def builder(self):
        return self
    sparkContext = rdd = _jsc = builder
    def getConf(self):
        return {{"spark.cores.max": "4", "spark.executor.cores": "2"}}
    def range(self, *words):
        assert words == (0, 4, 1, 4)
        return self
    def map(self, function):
        return self
    def count(self):
        return 4
    def getExecutorMemoryStatus(self):
        return self
    sc = getExecutorMemoryStatus
    def size(self):
        return {executors} + 1
SparkSession = Session()
"""
PROGRAM = """
import os, sys
print(__name__, sys.argv[1:], os.environ["HOSENET_RANK"], "HOSENET_LAUNCHER" in os.environ)
sys.exit(int(sys.argv[1]))
"""


class Driver:
    """A driver's process, and the agent's side of its start."""

    def __init__(self, folder: Path, executors: int) -> None:
        package = PYSPARK.format(executors=executors)
        (folder / "pyspark").mkdir()
        (folder / "pyspark" / "sql.py").write_text(package)
        (folder / "program.py").write_text(PROGRAM)
        # As in a VM: without an ending.
        self.script = folder / "rank-start"
        self.script.write_text(Path(rank_start.__file__).read_text())
        self.folder = folder
        self.agent = socket.socket(socket.AF_UNIX)
        self.agent.bind(str(folder / "ranks"))
        self.agent.listen()

    def start(self, *words: str) -> subprocess.Popen[str]:
        variables = {
            rank_start.SOCKET: str(self.folder / "ranks"),
            "HOSENET_RANK": "0",
            "PYTHONPATH": str(self.folder),
        }
        return subprocess.Popen(
            [
                sys.executable,
                spark_driver.__file__,
                str(self.script),
                *words,
            ],
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            text=True,
        )

    def begin(self) -> tuple[socket.socket, int]:
        """Answers a rank that has come; its socket, and its output."""
        rank, _ = self.agent.accept()
        assert rank.recv(64) == b"0\n"
        reading, writing = os.pipe()
        text = json.dumps({"HOSENET_RANK": "0"}).encode()
        descriptors = array.array("i", [writing])
        rank.sendmsg(
            [text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        )
        os.close(writing)
        return rank, reading


def everything(descriptor: int) -> str:
    with os.fdopen(descriptor) as pipe:
        return pipe.read()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A socket's path has at most 107 characters.
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", [("program.py",), ("-m", "program")])
def test_the_program_runs_after_the_start_with_the_ranks_output(
    folder: Path, words: tuple[str, ...]
) -> None:
    driver = Driver(folder, executors=2)
    with driver.start(*words, "3") as process:
        rank, output = driver.begin()
        assert everything(output) == "__main__ ['3'] 0 False\n"
        code, end_ns = rank.recv(64).split()
        assert (code, int(end_ns) > 0) == (b"3", True)
        printed, _ = process.communicate()
    assert process.returncode == 3
    assert set(printed.splitlines()) == {"a line of Java's"}
    rank.close()
    driver.agent.close()


def test_a_program_that_is_killed_is_told_as_such(folder: Path) -> None:
    endless = (
        "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
    )
    (folder / "endless.py").write_text(endless)
    driver = Driver(folder, executors=2)
    with driver.start("endless.py") as process:
        rank, output = driver.begin()
        os.kill(int(os.read(output, 64)), signal.SIGKILL)
        code, _ = rank.recv(64).split()
        assert int(code) == -signal.SIGKILL
        assert everything(output) == ""
        assert rank.recv(64) == b""
    assert process.returncode == rank_start.SIGNAL_EXIT + signal.SIGKILL
    rank.close()
    driver.agent.close()


def test_without_all_executors_the_rank_does_not_come(folder: Path) -> None:
    driver = Driver(folder, executors=1)
    with driver.start("program.py", "0") as process:
        rank, _ = driver.agent.accept()
        # Not a number: no rank.
        assert not rank.recv(64).strip().isdigit()
        printed, _ = process.communicate()
    assert process.returncode == spark_driver.NO_EXECUTORS
    assert printed.endswith("not all of Spark's executors came\n")
    rank.close()
    driver.agent.close()


def test_executors_that_never_come_are_not_waited_for_longer(
    folder: Path,
) -> None:
    driver = Driver(folder, executors=2)
    with (folder / "pyspark" / "sql.py").open("a") as package:
        package.write("Session.range = lambda *_: time.sleep(600)\n")
        package.write("import time\n")
    with driver.start("program.py", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a line of Java's\n"
        # In place of PATIENCE_S.
        (child,) = psutil.Process(process.pid).children()
        child.send_signal(signal.SIGALRM)
        printed, _ = process.communicate()
    assert process.returncode == spark_driver.NO_EXECUTORS
    assert printed.endswith("not all of Spark's executors came\n")
    driver.agent.close()


def test_a_signal_after_a_programs_end_does_not_hide_that_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launcher signals all its ranks when one of them fails."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in signals}
    wait = os.waitpid

    def signalled(pid: int, options: int) -> tuple[int, int]:
        ended = wait(pid, options)
        os.kill(os.getpid(), signal.SIGTERM)
        return ended

    agent, rank = socket.socketpair()
    process = subprocess.Popen(["sh", "-c", "exit 3"])
    monkeypatch.setattr(os, "waitpid", signalled)
    try:
        assert rank_start.watched(process.pid, rank) == 3
        assert agent.recv(64).split()[0] == b"3"
    finally:
        monkeypatch.undo()
        process.returncode = 3
        for number, handler in handlers.items():
            signal.signal(number, handler)
        agent.close()
        rank.close()
