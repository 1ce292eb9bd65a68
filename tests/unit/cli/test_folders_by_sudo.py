"""By sudo, commands open nothing in their caller's folders by a path that he can
exchange, and leave nothing of root's there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("root")
PROJECT = Path(__file__).parents[3]
CALLER = 54_321
EXPERIMENT = """\
name: opened
topology: {kind: fat-tree, k: 2, links: 1 Gbit/s, slots_per_server: 2}
policies: [{name: fcfs, embedder: oktopus}]
workload:
  kind: jobs
  jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]
"""
GRAPH = """\
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="undirected">
<node id="a"/><node id="b"/><edge source="a" target="b"/>
</graph></graphml>
"""
START = ("lab", "start", "1")
SWEEP = ("sweep", "x.yaml", "--over", "seed=1,2", "--processes", "1")
# A sweep's experiment file, of which only the digest is taken by name.
DIGESTED = "specs"
# What each reads as it is named: that is its argument.
COMMANDS: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]] = {
    "labs": ((START, ("lab", "hint", "1"), ("lab", "reset", "1")), ()),
    "a lab by a link": ((("lab", "start", "1", "--out", "link/one"),), ()),
    "examples": ((("examples", "new"),), ()),
    "import": ((("import", "a.graphml", "-o", "y.yaml"),), ("a.graphml",)),
    "policy": ((("policy", "new", "my-own"),), ()),
    "simulate": (
        (("simulate", "x.yaml"), ("audit", "latest"), ("runs",)),
        ("x.yaml",),
    ),
    "sweep": ((SWEEP, SWEEP), ("x.yaml",)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of the caller's, where no other folder is his."""
    home = Path("/var/lib", f"hosenet-{tmp_path.name}-{os.getpid()}")
    (home / "elsewhere").mkdir(parents=True)
    (home / "x.yaml").write_text(EXPERIMENT)
    (home / "a.graphml").write_text(GRAPH)
    (home / "link").symlink_to("elsewhere")
    for path in (home, *home.iterdir()):
        os.chown(path, CALLER, CALLER, follow_symlinks=False)
    yield home
    shutil.rmtree(home)


def opened(folder: Path, out: Path, *arguments: str) -> set[str]:
    """Paths that a command by sudo opens, makes or removes by their names."""
    driver = PROJECT / "tests" / "support" / "opened_paths.py"
    by_sudo = {"SUDO_UID": str(CALLER), "SUDO_GID": str(CALLER)}
    done = subprocess.run(
        [sys.executable, "-P", str(driver), str(out), *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
        | by_sudo,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    paths = {line.split(" ", 1)[1] for line in lines}
    return {path for path in paths if Path(path).parent.name != DIGESTED}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_goes_by_open_folders(
    name: str, folder: Path, tmp_path: Path
) -> None:
    commands, read_as_named = COMMANDS[name]
    for command in commands:
        by_name = opened(folder, tmp_path / "out", *command)
        assert by_name <= set(read_as_named)
    made = [path for path in folder.rglob("*") if path.name != "elsewhere"]
    assert {path.lstat().st_uid for path in made} == {CALLER}
