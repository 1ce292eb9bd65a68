"""Loops run as Python until they are long, then as machine code of all that they call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed import compiled
from testbed.compiled import LazyLoop
from testbed.plugin_guard.decision_limit import TimeOver


def _doubled(number: int) -> int:
    return 2 * number


def _twice(number: int) -> int:
    return _doubled(_doubled(number))


def quadrupled(number: int) -> int:
    """A loop with parts, one of which calls another."""
    return _twice(number)


@pytest.mark.slow
def test_a_short_loop_is_python_and_a_long_one_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "_numba_is_there", lambda: False)
    loop = LazyLoop(quadrupled)
    assert loop(loop.patience, 5) == 20
    assert "machine_code" not in vars(loop)
    assert loop(1, 6) == 24
    assert vars(loop)["machine_code"].py_func is not quadrupled
    monkeypatch.setattr(compiled, "_numba_is_there", lambda: True)
    short = LazyLoop(quadrupled)
    assert short(1, 7) == 28
    assert "machine_code" in vars(short)
    assert (
        _twice.__globals__["_doubled"] is _doubled
    )  # the module keeps Python's functions


@pytest.mark.slow
def test_importing_all_policies_does_not_import_numba() -> None:
    asked = "import sys, testbed.schedulers.registry as r; r.known_policies(); print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "testbed.schedulers.dcloud_search" in shown.stdout.split()
    assert "numba" not in shown.stdout.split()


def test_an_interrupt_during_machine_code_is_one() -> None:
    """Python tells it as a fault of Numba's, whose cause it is."""

    def interrupted() -> None:
        raise SystemError(
            "a result with an exception set"
        ) from KeyboardInterrupt()

    def interrupted_deeply() -> None:
        try:
            interrupted()
        except SystemError as fault:
            raise SystemError("of the call around it") from fault

    def broken() -> None:
        raise SystemError("a fault")

    def over() -> None:
        # What ends a plug-in's decision is no Exception either.
        raise SystemError("a result with an exception set") from TimeOver(
            over, 10.0, " (mine.py:12)"
        )

    loop = LazyLoop(_doubled)
    for run in (interrupted, interrupted_deeply):
        loop._run = run
        with pytest.raises(KeyboardInterrupt):
            loop(0)
    loop._run = over
    with pytest.raises(TimeOver, match="within 10 s"):
        loop(0)
    loop._run = broken
    with pytest.raises(SystemError, match="a fault"):
        loop(0)


LARGE = """\
name: large
topology: {kind: tree, fanout: [10, 10, 20], links: [50 Gbit/s, 5 Gbit/s, 1 Gbit/s],
  slots_per_server: 4}
policies: [dcloud, vc, bl, ps-p, jsa]
workload: {kind: poisson, hours: 0.2}
"""


@pytest.mark.long
@pytest.mark.slow
def test_nothing_is_compiled_after_precompile(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (tmp_path / "large.yaml").write_text(LARGE, encoding="utf-8")

    def call(*arguments: str) -> str:
        shown = subprocess.run(
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            timeout=500,
            check=True,
            cwd=Path(testbed.__path__[0]).parent,
            env={**os.environ, "NUMBA_CACHE_DIR": str(kept)},
        )
        return shown.stderr

    assert "compiling inner loops 3/3" in call("testbed.play.precompile")
    before = sorted(path.name for path in kept.rglob("*.nbc"))
    assert len(before) == 5
    large = str(tmp_path / "large.yaml")
    told = call(
        "testbed.cli.main",
        "simulate",
        large,
        "--out",
        str(tmp_path),
        "--json",
    )
    assert "compiling" not in told
    assert sorted(path.name for path in kept.rglob("*.nbc")) == before


STRANGERS = """\
import sys
from testbed.compiled import LazyLoop

def successor(number):
    return number + 1

print(LazyLoop(successor).machine_code(1))
"""


@pytest.mark.slow
def test_machine_code_is_not_taken_from_where_the_working_directory_says(
    tmp_path: Path,
) -> None:
    """Numba would unpickle what a stranger has put there."""
    script = tmp_path / "script.py"
    script.write_text(STRANGERS)
    strangers = tmp_path / "strangers"
    settings = tmp_path / ".numba_config.yaml"
    settings.write_text(f"cache_dir: {strangers}\n")
    root = str(Path(testbed.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2\n", done.stderr
    assert not strangers.exists()
