"""Sweeps' tasks on Dask's workers as processes: checked, killed, given files, stopped."""

from __future__ import annotations

import _thread
import hashlib
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from testbed.errors import BadInput, MachineCannot, RunFailed
from testbed.sweeps import worker_link
from testbed.sweeps.cluster import client, executor
from testbed.sweeps.tasks import FileRef, Outcome, Task
from tests.support.dask_processes import ROOT, DaskProcesses
from tests.support.scripted_tasks import (
    DONE_AGAIN,
    Deadly,
    LiveChild,
    LiveRun,
    Square,
    Unpicklable,
    Wrong,
    wait_for,
    wait_until,
)

WITHOUT_PRODUCT = """
import sys

class Nowhere:
    def find_spec(name, path=None, target=None):
        if name == "testbed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere)
"""

pytestmark = [pytest.mark.slow]


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[DaskProcesses]:
    with DaskProcesses(tmp_path) as processes:
        yield processes


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


def test_a_worker_that_cannot_be_reached_is_named(
    dask: DaskProcesses, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined_worker = worker_link.joined_worker
    unreached = list[str]()

    async def but_one(client: Any, address: str) -> Any:
        if address in (unreached or [address]):
            unreached[:] = [address]
            return None
        return await joined_worker(client, address)

    monkeypatch.setattr(worker_link, "joined_worker", but_one)
    for name in "ab":
        dask.worker(name)
    dask.wait_for_workers()
    with executor(dask.address, 1, said.append) as there:
        done = list(there.results(Square(number) for number in range(300)))
    assert squares(done) == wanted(300)
    assert len({outcome.provenance["pid"] for _, outcome in done}) == 1
    assert said == [
        f"worker {unreached[0]} is not used: its scheduler does not reach it",
    ]


def test_a_scheduler_that_does_not_answer(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.sweeps.cluster.ANSWER_S", 0.5)
    with pytest.raises(
        BadInput, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"
    ):
        executor("tcp://127.0.0.1:9", 2, said.append).__enter__()


def test_a_scheduler_with_tls_wants_keys(
    said: list[str], tmp_path: Path
) -> None:
    from dask import config
    from distributed.security import Security

    keys = Security.temporary()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text(keys.tls_ca_file, "utf-8")
    key.write_text(keys.tls_client_key, "utf-8")
    options = (
        "--protocol",
        "tls",
        "--tls-ca-file",
        cert,
        "--tls-cert",
        cert,
        "--tls-key",
        key,
    )
    paths = {
        "ca-file": str(cert),
        "client.cert": str(cert),
        "client.key": str(key),
    }
    tls = {
        f"distributed.comm.tls.{name}": path for name, path in paths.items()
    }
    with DaskProcesses(tmp_path, *map(str, options)) as dask:
        assert dask.address.startswith("tls://")
        dask.worker("a")
        with pytest.raises(BadInput, match="needs keys"):
            executor(dask.address, 1, said.append).__enter__()
        with (
            config.set(tls),
            executor(dask.address, 1, said.append) as there,
        ):
            assert (
                squares(list(there.results([Square(2), Square(3)])))[
                    "square-3"
                ]
                == 9
            )


def test_a_killed_worker_changes_no_result(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    for name in "abcd":
        dask.worker(name)
    dask.wait_for_workers()
    gate = tmp_path / "gate"
    tasks = [
        Square(number, gate if number else None) for number in range(200)
    ]
    done = []
    with executor(dask.address, 1, said.append) as there:
        for task, outcome in there.results(tasks):
            if not done:
                dask.kill("b")  # it has tasks: every worker has, and waits
                gate.touch()
            done.append((task, outcome))
    assert len(done) == 200
    assert squares(done) == wanted(200)
    assert any(DONE_AGAIN.search(sentence) for sentence in said)
    assert {outcome.provenance["worker"] for _, outcome in done} >= {
        "a",
        "c",
        "d",
    }


def test_a_task_that_kills_its_workers_fails_and_no_other_does(
    dask: DaskProcesses, said: list[str]
) -> None:
    for name in "abcd":
        dask.worker(name)
    dask.wait_for_workers()
    tasks = [
        Deadly(number) if number == 5 else Square(number)
        for number in range(20)
    ]
    with executor(dask.address, 1, said.append) as there:
        done = list(there.results(tasks))
    failed = [
        outcome.failure
        for _, outcome in done
        if outcome.failure is not None
    ]
    assert len(done) == 20
    [failure] = failed
    assert failure.message.startswith(
        "square-5: given up after 3 attempts: worker tcp://"
    )
    assert failure.message.endswith("was lost")


def test_what_a_task_raises_is_its_failure(
    dask: DaskProcesses, said: list[str]
) -> None:
    dask.worker("a")
    tasks = [Wrong(0), Wrong(1, planned=False), Unpicklable(2), Square(3)]
    with executor(dask.address, 1, said.append) as there:
        done = {task.key: outcome for task, outcome in there.results(tasks)}
    failures = {key: outcome.failure for key, outcome in done.items()}
    assert failures["square-0"] is not None
    assert failures["square-0"].error.args == ("the cell is bad",)
    assert (failures["square-0"].hint, failures["square-0"].exit_code) == (
        "make it good",
        2,
    )
    assert "ZeroDivisionError: a fault" in str(failures["square-1"])
    assert "square-2: given up after 3 attempts" in str(
        failures["square-2"]
    )
    assert "lambda" in str(failures["square-2"])
    assert done["square-3"].result == {"square": 9}


def test_workers_of_other_code_are_not_used(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    """Of other code, without the product, with another numpy; one that agrees does all."""
    changed, bare, old = (
        tmp_path / f"for-{name}" for name in ("changed", "bare", "old")
    )
    copy_product(changed)
    (changed / "testbed/units.py").write_text("# other\n", "utf-8")
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(WITHOUT_PRODUCT, "utf-8")
    metadata = old / "numpy-1.0.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(
        "Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n", "utf-8"
    )
    for place in (changed, bare, old):
        dask.worker(place.name, PYTHONPATH=str(place))
    dask.wait_for_workers()
    with pytest.raises(
        BadInput,
        match=r"no worker of .* can be used: worker tcp:.* on host",
    ) as bad:
        executor(dask.address, 1, said.append).__enter__()
    assert "requirements/run.txt" in str(bad.value.hint)
    dask.worker("good")
    dask.wait_for_workers()
    with executor(dask.address, 1, said.append) as there:
        done = list(there.results(Square(number) for number in range(20)))
    assert squares(done) == wanted(20)
    assert {outcome.provenance["worker"] for _, outcome in done} == {"good"}
    for reason in (
        "is not used: it has other code of Hosenet: ",
        "is not used: it has no Python package 'testbed'",
        f"is not used: it has numpy 1.0 (here {numpy.__version__})",
    ):
        assert any(reason in sentence for sentence in said), (reason, said)


def copy_product(to: Path) -> None:
    for package in ("testbed", "topologies", "jobs", "controller"):
        shutil.copytree(
            ROOT / package,
            to / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def test_files_are_found_or_sent_once_and_kept(
    dask: DaskProcesses,
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one path the driver alone has a file; of another, the worker has its content elsewhere."""
    driver, data, cache = (
        tmp_path / name for name in ("driver", "data", "cache")
    )
    driver.mkdir()
    (data / "deep").mkdir(parents=True)
    monkeypatch.chdir(driver)
    (driver / "both").write_text("at its place", "utf-8")
    (driver / "found").write_text("by its content", "utf-8")
    (driver / "sent").write_text("x" * 10_000_000, "utf-8")
    (data / "deep/renamed").write_text("by its content", "utf-8")
    # Each process has another folder by this name.
    elsewhere = Path("/proc/self/cwd")
    files = {name: ref(elsewhere / name) for name in ("found", "sent")}
    files["both"] = ref(driver / "both")
    environment = {"TESTBED_DATA": str(data), "XDG_CACHE_HOME": str(cache)}
    for name in "ab":
        dask.worker(name, **environment)
    dask.wait_for_workers()
    with executor(dask.address, 1, said.append) as there:
        done = list(
            there.results(
                Square(number, files=files) for number in range(10)
            )
        )
    squares(done)
    for _, outcome in done:
        assert outcome.result is not None
        assert outcome.result["both"] == "at its place"
        assert outcome.result["found"] == "by its content"
        assert outcome.result["sent"] == "x" * 10_000_000
    [kept] = [path for path in cache.rglob("*") if path.is_file()]
    assert kept.name == files["sent"].sha256
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    # A worker that starts later believes no name: a damaged file is sent again.
    kept.write_text("y" * 10_000_000, "utf-8")
    for name in "ab":
        dask.kill(name)
    dask.worker("c", **environment)
    dask.wait_for_workers()
    with executor(dask.address, 1, said.append) as there:
        [(_, outcome)] = there.results([Square(1, files=files)])
    assert outcome.failure is None
    assert kept.read_text("utf-8") == "x" * 10_000_000


def test_a_file_that_has_changed_since_is_not_used(
    dask: DaskProcesses,
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    monkeypatch.chdir(driver)
    (driver / "trace").write_text("as it was", "utf-8")
    files = {"trace": ref(Path("/proc/self/cwd/trace"))}
    (driver / "trace").write_text("as it is!", "utf-8")
    dask.worker("a", XDG_CACHE_HOME=str(tmp_path / "cache"))
    with executor(dask.address, 1, said.append) as there:
        done = list(there.results([Square(1, files=files), Square(2)]))
    failures = {task.key: outcome.failure for task, outcome in done}
    assert failures["square-2"] is None
    assert "has changed since the sweep began" in str(failures["square-1"])
    assert not [
        path for path in (tmp_path / "cache").rglob("*") if path.is_file()
    ]


def ref(path: Path) -> FileRef:
    return FileRef(
        path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path
    )


def test_closing_drops_what_is_not_done_and_leaves_the_cluster(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    from distributed import Client

    gate = tmp_path / "gate"
    for name in "ab":
        dask.worker(name)
    dask.wait_for_workers()
    drawn = []

    def tasks() -> Iterator[Task]:
        for number in range(1000):
            drawn.append(number)
            yield Square(number, gate if number else None)

    with executor(dask.address, 1, said.append) as there:
        results = there.results(tasks())
        next(results)
        results.close()
        gate.touch()
        assert squares(
            list(there.results(Square(number) for number in range(5)))
        ) == wanted(5)
    # Two workers had two batches each, of at most two.
    assert len(drawn) <= 9
    with Client(dask.address, set_as_default=False) as other:
        assert len(other.scheduler_info(n_workers=-1)["workers"]) == 2
        wait_until(
            lambda: other.run_on_scheduler(known_tasks) == 0,
            "the scheduler to forget",
        )
    assert [process.poll() for process in dask.workers.values()] == [
        None,
        None,
    ]


def known_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


LIVE = ("--resources", "testbed=1")


APART = """
from dataclasses import replace

from testbed.sweeps import worker_side

# Dask loads this twice.
worker_side.own_facts = getattr(worker_side, "own_facts", worker_side.facts)


async def facts(dask_worker):
    return replace(await worker_side.own_facts(dask_worker), boot_id=str(dask_worker.name))


worker_side.facts = facts
"""


def live_workers(
    dask: DaskProcesses,
    names: str,
    place: Path,
    *,
    able: bool = True,
    apart: bool = False,
) -> None:
    """Workers that offer the live network, of machines on which the doctor says so or not; each on
    a machine of its own, if they are ``apart``.
    """
    (place / "apart.py").write_text(APART if apart else "", "utf-8")
    for name in names:
        preload = (
            "--preload",
            doctor_says(place, able=able),
            "--preload",
            str(place / "apart.py"),
        )
        dask.worker(name, *LIVE, *preload)
    dask.wait_for_workers()


def doctor_says(place: Path, *, able: bool) -> str:
    """A file that makes the worker's doctor say that."""
    file = place / f"doctor_{able}.py"
    record = {
        "doctor": {"can_run": able, "verdict": "as scripted"},
        "machine": {"cpus": 2},
    }
    lines = (
        "from testbed.sweeps import worker_side",
        f"def said(): return {record!r}",
    )
    file.write_text(
        "\n".join((*lines, "worker_side.examined = said")), "utf-8"
    )
    return str(file)


def test_live_tasks_take_turns_on_a_machine(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    dask.worker("sim")
    live_workers(dask, "ab", tmp_path)
    with executor(dask.address, 1, said.append) as there:
        # Invalid on one machine, which the file accepts.
        tasks = [
            LiveRun(number, log=log, bad=("a",), accepted=True)
            for number in range(6)
        ]
        done = list(there.results(tasks))
    assert len(squares(done)) == 6
    lines = [line.split() for line in log.read_text("utf-8").splitlines()]
    assert [line[0] for line in lines] == ["begin", "end"] * 6
    assert [line[1:] for line in lines[::2]] == [
        line[1:] for line in lines[1::2]
    ]
    assert {line[2] for line in lines} == {"a", "b"}
    for _, outcome in done:
        assert outcome.provenance["doctor"]["verdict"] == "as scripted"
        assert outcome.provenance["machine"] == {"cpus": 2}


def test_a_machine_whose_run_is_invalid_is_left_out(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    live_workers(dask, "ab", tmp_path, apart=True)
    with executor(dask.address, 1, said.append) as there:
        tasks = [
            LiveRun(number, log=log, bad=("a",)) for number in range(5)
        ]
        done = list(there.results(tasks))
        assert len(squares(done)) == 5
        assert {outcome.provenance["worker"] for _, outcome in done} == {
            "b"
        }
        # Two machines' lines come in any order.
        lines = [
            line.split() for line in log.read_text("utf-8").splitlines()
        ]
        assert (
            sorted(line[2] for line in lines if line[0] == "begin")
            == ["a"] + ["b"] * 5
        )
        [sentence] = said
        assert (
            "is given no more live tasks: its live run square-" in sentence
        )
        assert sentence.endswith(" is invalid: as scripted")
        # The last machine fails too: what is left is not done.
        rest = list(
            there.results(
                LiveRun(number, log=log, bad=("b",)) for number in range(3)
            )
        )
    assert [outcome.failure is not None for _, outcome in rest] == [
        True
    ] * 3
    assert "square-0 is not done: no live worker is left" in str(
        rest[0][1].failure
    )


def test_a_machine_that_the_doctor_refuses_runs_nothing(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    live_workers(dask, "a", tmp_path, able=False)
    with executor(dask.address, 1, said.append) as there:
        done = list(
            there.results([LiveRun(0, log=tmp_path / "log"), Square(1)])
        )
    failures = {task.key: outcome.failure for task, outcome in done}
    assert "cannot run the live network: as scripted" in str(
        failures["square-0"]
    )
    assert failures["square-1"] is None
    assert not (tmp_path / "log").exists()


def test_no_worker_offers_the_live_network(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    dask.worker("a")
    with executor(dask.address, 1, said.append) as there:
        results = there.results([LiveRun(0, log=tmp_path / "log")])
        with pytest.raises(
            MachineCannot, match="offers the live network"
        ) as refusal:
            next(results)
    assert "--resources testbed=1" in str(refusal.value.hint)


def test_a_live_run_whose_worker_is_killed_ends_and_is_done_elsewhere(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    gate, log = tmp_path / "gate", tmp_path / "log"
    live_workers(dask, "ab", tmp_path)
    killed = threading.Thread(target=kill_first, args=(dask, log, gate))
    killed.start()
    with executor(dask.address, 1, said.append) as there:
        [(_, outcome)] = there.results([LiveRun(3, gate=gate, log=log)])
    killed.join()
    assert outcome.result is not None
    assert outcome.result["square"] == 9
    begun = [
        line.split()[2]
        for line in log.read_text("utf-8").splitlines()
        if "begin" in line
    ]
    assert sorted(begun) == ["a", "b"]
    assert outcome.provenance["worker"] == begun[1]
    assert any(
        "the next one there removes first" in sentence for sentence in said
    )


def kill_first(dask: DaskProcesses, log: Path, gate: Path) -> None:
    """Kills the worker that begins a live run, and lets the next one end."""
    wait_for(log)
    wait_until(
        lambda: log.read_text("utf-8").endswith("\n"), "the first line"
    )
    dask.kill(log.read_text("utf-8").split()[2])
    gate.touch()


def test_a_live_program_is_interrupted_and_cleans(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    """By the end of its worker; then, on the next one, by Ctrl-C."""
    log = tmp_path / "log"
    live_workers(dask, "a", tmp_path)

    def lines(word: str) -> int:
        return log.read_text("utf-8").count(word)

    def interrupt_twice() -> None:
        wait_for(log)
        dask.kill("a")
        wait_until(lambda: lines("cleaned") == 1, "the program to clean")
        dask.worker(
            "b", *LIVE, "--preload", doctor_says(tmp_path, able=True)
        )
        wait_until(lambda: lines("started") == 2, "the second run")
        _thread.interrupt_main()

    interrupting = threading.Thread(target=interrupt_twice)
    with executor(dask.address, 1, said.append) as there:
        results = there.results([LiveChild(1, log=log)])
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        interrupting.join()
        wait_until(
            lambda: lines("cleaned") == 2, "the second program to clean"
        )
    assert said[-1].startswith("interrupting live runs on worker tcp://")


@pytest.mark.long
def test_a_scheduler_that_dies_ends_the_sweep(
    dask: DaskProcesses, said: list[str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dask.worker("a")
    with executor(dask.address, 1, said.append) as there:
        results = there.results(
            Square(number, gate if number else None) for number in range(9)
        )
        next(results)
        dask.scheduler.kill()
        with pytest.raises(
            RunFailed, match=r"the Dask scheduler of tcp://.* is gone"
        ):
            list(results)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("expected ',' or ']'\n  in x.yaml"), "expected"),
        (ValueError(), "ValueError"),
    ],
)
def test_broken_settings_of_dask_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: ValueError, told: str
) -> None:
    def broken(_: str) -> None:
        raise error

    monkeypatch.setattr(
        "testbed.sweeps.cluster.importlib.import_module", broken
    )
    with (
        pytest.raises(
            BadInput, match=f"Dask does not start: {told}"
        ) as found,
        client("tcp://127.0.0.1:1"),
    ):
        pass
    assert "~/.config/dask" in str(found.value.hint)
