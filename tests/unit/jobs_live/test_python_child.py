"""Python processes of the product: none imports from the working directory or believes PYTHON*."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import venv
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from jobs.python_child import (
    ISOLATED,
    START,
    isolated_spawn,
    python_command,
)
from testbed.policy_trials.policy_process import in_fresh_process
from testbed.spec import experiment_file

ROOT = Path(__file__).parents[3]
STARTED_HERE = {
    "testbed/cli/python.py",  # the caller asks for it, with what it imports
    "jobs/python_child.py",
    "jobs/live/program.py",  # the scripts' first line, with -I
    "jobs/live/program_plan.py",  # in a job's VM, as its user
    "jobs/live/dask_head.py",  # the same
    "controller/app_environment.py",  # venv and pip, with -I
    "testbed/labs/sandbox.py",  # with -P -s -S -B, confined
    "testbed/backends/emu/preflight.py",  # a text, with -I
    "labs/02-hose-by-hand/hose_by_hand_checks.py",  # the lab's own file, with -I
}
NAMES = (
    *("typer", "json", "copy", "types", "pickle", "multiprocessing"),
    *("testbed", "controller", "jobs", "runpy", "sitecustomize", "socket"),
)
TEXT = """\
name: small
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 3 s}
"""


@pytest.fixture
def hostile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A working directory of somebody's, whose modules would leave a file ``taken``."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    taken = tmp_path / "taken"
    code = (
        f"open({str(taken)!r}, 'a').write(__name__)\nraise SystemExit(9)\n"
    )
    for name in NAMES:
        (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    yield folder
    assert not taken.exists(), taken.read_text()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("testbed.cli.main", "--version"), ("controller.launch", "--help")],
)
def test_a_module_is_run_whatever_lies_in_the_folder(
    module: str, arguments: str, hostile: Path
) -> None:
    done = subprocess.run(
        python_command(module, arguments),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_an_installation_behind_a_link_is_searched_after_the_library(
    tmp_path: Path,
) -> None:
    """Beside the testbed may lie packages with names of the library's modules."""
    venv.create(tmp_path / "real", with_pip=False, symlinks=True)
    (tmp_path / "link").symlink_to("real")
    [packages] = (tmp_path / "real").glob("lib/python*/site-packages")
    (packages / "jobs").mkdir()
    start = packages / "jobs" / START.name
    start.write_bytes(START.read_bytes())
    (packages / "colorsys.py").write_text("")
    (packages / "program.py").write_text(
        "import colorsys\nprint(colorsys.hls_to_rgb)\n"
    )
    done = subprocess.run(
        [tmp_path / "link/bin/python", *ISOLATED, start, "program"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_fresh_process_of_policy_check_is_such_a_one(
    hostile: Path,
) -> None:
    experiment_file.parse_experiment(TEXT, Path("small"))
    [[lines]] = in_fresh_process([TEXT], 1, 1)
    assert json.loads(lines[0])


@pytest.mark.slow
def test_spawned_processes_are_such_ones(hostile: Path) -> None:
    before = dict(os.environ)
    spawn = get_context("spawn")
    with isolated_spawn(), ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert pool.submit(abs, -3).result() == 3
    assert dict(os.environ) == before


def test_arguments_and_name_are_the_modules(tmp_path: Path) -> None:
    flags = (*ISOLATED, "-S", "-X", "importtime")
    done = subprocess.run(
        python_command("jobs.live.forkserver", "1", "2", flags=flags),
        capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    # It was to be the child of process 2.
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["testbed", "controller", "jobs", "labs"])
def test_no_other_module_starts_a_python(part: str) -> None:
    starting = set()
    for path in (ROOT / part).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case (
                    ast.List(elts=[*words])
                    | ast.Tuple(elts=[*words])
                    | ast.Call(args=[*words])
                ) if any(
                    isinstance(word, ast.Attribute)
                    and word.attr == "executable"
                    for word in words
                ):
                    starting.add(str(path.relative_to(ROOT)))
    assert starting <= STARTED_HERE
