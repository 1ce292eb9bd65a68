"""Sweeps' tasks on processes here: each once, lost ones again, none left at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import MachineCannot
from testbed.sweeps import local_processes
from testbed.sweeps.cluster import executor
from testbed.sweeps.local_processes import Processors
from testbed.sweeps.task_supply import Order, Supply
from testbed.sweeps.tasks import Outcome, Task
from tests.support.dask_processes import ROOT
from tests.support.scripted_tasks import (
    DONE_AGAIN,
    Deadly,
    Square,
    Unpicklable,
    Wrong,
    wait_until,
)

slow = pytest.mark.slow


@pytest.fixture
def said() -> list[str]:
    return []


def squares(done: list[tuple[Task, Outcome]]) -> dict[str, int]:
    assert [outcome.failure for _, outcome in done if outcome.failure] == []
    return {
        task.key: dict(outcome.result or {})["square"]
        for task, outcome in done
    }


def wanted(count: int) -> dict[str, int]:
    return {f"square-{number}": number**2 for number in range(count)}


@slow
def test_the_processors_here_compute_every_task_once(
    said: list[str],
) -> None:
    with executor(None, 2, said.append) as here:
        done = list(here.results(Square(number) for number in range(300)))
        again = list(here.results([Square(7), Square(8)]))
    assert len(done) == 300
    assert squares(done) == wanted(300)
    assert squares(again) == {"square-7": 49, "square-8": 64}
    assert len({outcome.provenance["pid"] for _, outcome in done}) == 2
    assert os.getpid() not in {
        outcome.provenance["pid"] for _, outcome in done
    }
    assert said == []


def test_one_task_needs_no_other_process(said: list[str]) -> None:
    with executor(None, 2, said.append) as here:
        [(_, outcome)] = here.results([Square(3)])
    assert outcome.provenance["pid"] == os.getpid()


def test_no_dask_is_loaded() -> None:
    script = (
        "import sys; from testbed.sweeps.cluster import executor\n"
        "with executor(None, 2, print): sys.exit('distributed' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=False
    )
    assert done.returncode == 0


@slow
def test_a_lost_process_changes_no_result(
    said: list[str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = [
        Square(number, gate if number else None) for number in range(40)
    ]
    done = []
    with executor(None, 2, said.append) as here:
        for task, outcome in here.results(tasks):
            if not done:
                os.kill(outcome.provenance["pid"], signal.SIGKILL)
                gate.touch()
            done.append((task, outcome))
    assert len(done) == 40
    assert squares(done) == wanted(40)
    [sentence] = said
    assert DONE_AGAIN.search(sentence)


@slow
def test_a_task_that_kills_its_processes_fails_and_no_other_does(
    said: list[str],
) -> None:
    tasks = [
        Deadly(number) if number == 5 else Square(number)
        for number in range(20)
    ]
    with executor(None, 2, said.append) as here:
        done = list(here.results(tasks))
    [failure] = [o.failure for _, o in done if o.failure is not None]
    assert len(done) == 20
    assert failure.message.startswith(
        "square-5: given up after 3 attempts: "
    )
    assert failure.message.endswith("was lost")
    assert len(said) == 3


@slow
def test_what_a_task_raises_is_its_failure(said: list[str]) -> None:
    tasks = [Wrong(0), Wrong(1, planned=False), Unpicklable(2), Square(3)]
    with executor(None, 2, said.append) as here:
        done = {task.key: outcome for task, outcome in here.results(tasks)}
    failures = {key: outcome.failure for key, outcome in done.items()}
    assert failures["square-0"] is not None
    assert failures["square-0"].error.args == ("the cell is bad",)
    assert failures["square-0"].exit_code == 2
    assert "ZeroDivisionError: a fault" in str(failures["square-1"])
    assert "lambda" in str(failures["square-2"])
    assert done["square-3"].result == {"square": 9}


@slow
def test_sources_that_have_changed_since_are_not_used(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_processes, "code_digest", lambda: "as it was")
    with executor(None, 2, said.append) as here:
        done = list(here.results([Square(1), Square(2)]))
    for _, outcome in done:
        assert "sources of Hosenet have changed" in str(outcome.failure)


@slow
def test_closing_drops_what_is_not_done(
    said: list[str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    drawn = []

    def tasks() -> Iterator[Task]:
        for number in range(1000):
            drawn.append(number)
            yield Square(number, gate if number else None)

    with executor(None, 2, said.append) as here:
        results = here.results(tasks())
        _, outcome = next(results)
        results.close()
        assert not Path(f"/proc/{outcome.provenance['pid']}").exists()
        gate.touch()
        again = list(here.results(Square(number) for number in range(5)))
    assert squares(again) == wanted(5)
    # Two processes had two each, and one task was looked at.
    assert len(drawn) <= 6


def test_live_tasks_run_in_this_process(
    said: list[str], tmp_path: Path
) -> None:
    tasks = [Square(1, live=True), Square(2, live=True)]
    with executor(None, 2, said.append) as here:
        done = list(here.results(tasks))
    pids = {outcome.provenance["pid"] for _, outcome in done}
    assert pids == {os.getpid()}


@slow
def test_processes_that_cannot_be_started_are_told(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    whole = local_processes._Process.__init__

    def first_alone(process: local_processes._Process) -> None:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(process)
        whole(process)

    monkeypatch.setattr(local_processes._Process, "__init__", first_alone)
    with executor(None, 3, said.append) as here:
        done = list(here.results(Square(number) for number in range(9)))
        assert here.width == 1
    assert squares(done) == wanted(9)
    assert said == [
        "fewer than 3 worker processes have started; they do all"
    ]
    with (
        executor(None, 3, said.append) as here,
        pytest.raises(
            MachineCannot, match="Resource temporarily unavailable"
        ),
    ):
        list(here.results(Square(number) for number in range(9)))


SWEEP = """
import sys
from pathlib import Path
from testbed.sweeps.cluster import executor
from tests.support.scripted_tasks import Square

def tasks():
    for number in range(100):
        yield Square(number, Path(sys.argv[1]) if number > 3 else None)

if __name__ == "__main__":
    try:
        with executor(None, 2, print) as here:
            for _, outcome in here.results(tasks()):
                print(outcome.provenance["pid"], flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_of_the_driver_leaves_no_process(
    tmp_path: Path, signal_number: int
) -> None:
    """Ctrl-C reaches the workers too, as from a terminal; SIGKILL the driver alone."""
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP, "utf-8")
    argv = [
        sys.executable,
        "-W",
        "error",
        str(script),
        str(tmp_path / "gate"),
    ]
    pipe = subprocess.PIPE
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv,
        env=env,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        pids = {int(driver.stdout.readline()) for _ in range(4)}
        if signal_number == signal.SIGINT:
            os.killpg(driver.pid, signal_number)
        else:
            driver.kill()
        _, err = driver.communicate(timeout=60)
    for pid in pids:
        wait_until(
            lambda pid=pid: not Path(f"/proc/{pid}").exists(),
            f"process {pid} to end",
        )
    if signal_number == signal.SIGINT:
        assert driver.returncode == 130
        assert err == ""


def test_the_task_that_was_computed_is_to_blame(said: list[str]) -> None:
    """A task that is refused by a lost process is heard of before the one
    that was computed.
    """
    computed, refused = Order(Square(1)), Order(Square(2))
    futures: list[Future[Outcome]] = [Future(), Future()]
    futures[1].set_exception(BrokenProcessPool())
    sent = dict(zip(futures, (computed, refused), strict=True))
    process: Any = SimpleNamespace(sent=sent, pid=7, end=lambda: None)
    here = Processors(2, said.append)
    here._processes.append(process)
    supply = Supply([])
    assert here._received(futures[1], supply) is None
    assert (computed.losses, refused.losses) == (1, 0)
    assert supply.take(1) == (computed,)
