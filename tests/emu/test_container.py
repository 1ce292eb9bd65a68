"""The image: built for both releases, the simulator without privileges, the live network with them.

HOSENET_PODMAN is the command, with the global options that a machine needs; HOSENET_PODMAN_BUILD
and HOSENET_PODMAN_RUN are options of ``build`` and ``run``, such as limits and pip's settings.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PODMAN = shlex.split(os.environ.get("HOSENET_PODMAN", "podman"))
BUILD = shlex.split(os.environ.get("HOSENET_PODMAN_BUILD", ""))
RUN = shlex.split(os.environ.get("HOSENET_PODMAN_RUN", ""))
RELEASES = ("bookworm", "trixie")
BASE = "localhost/hosenet-base"
SMALL = """\
name: small
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02}
policies: [vc]
workload:
  kind: jobs
  jobs: [{id: a, vms: 3, bandwidth: 200 Mbit/s, duration: 2 s}]
expect: {fidelity: invalid}
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PODMAN, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )


@cache
def built(release: str) -> str:
    """The image of the checkout on a release; skips where it cannot be built."""
    if shutil.which(PODMAN[0]) is None:
        pytest.skip(f"no {PODMAN[0]} (Debian: podman)")
    base = f"{BASE}:{release}"
    if podman("image", "exists", base).returncode != 0:
        pytest.skip(f"no base image {base} (docs/containers.md makes it)")
    image = f"localhost/hosenet-test:{release}"
    arguments = (
        f"--build-arg=RELEASE={release}",
        f"--build-arg=BASE={base}",
    )
    done = podman("build", *BUILD, *arguments, "--tag", image, ".")
    assert done.returncode == 0, done.stderr[-4000:]
    return image


@pytest.fixture(params=RELEASES)
def image(request: pytest.FixtureRequest) -> str:
    return built(request.param)


def contained(
    image: str, options: tuple[str, ...], *arguments: str
) -> subprocess.CompletedProcess[str]:
    kept = ("run", "--rm", "--network=none", *RUN)
    return podman(*kept, *options, image, *arguments)


def test_the_simulator_needs_no_privileges(image: str) -> None:
    options = ("--cap-drop=all", "--user=1000:1000")
    done = contained(image, options, "simulate", "examples/quickstart.yaml")
    assert done.returncode == 0, done.stderr
    assert "audit: passed" in done.stdout
    assert "matplotlib" not in done.stderr


def test_without_privileges_the_doctor_and_a_run_name_what_is_missing(
    image: str,
) -> None:
    for command in (("doctor",), ("run", "examples/quickstart.yaml")):
        done = contained(image, (), *command)
        assert done.returncode == 3, done.stderr
        assert "/proc/sys is read-only" in done.stdout + done.stderr


def test_with_privileges_a_run_measures_its_jobs(
    image: str, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "runs").mkdir()
    options = ("--privileged", f"--volume={tmp_path}:/files")
    done = contained(
        image, options, "run", "/files/small.yaml", "--out", "/files/runs"
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("*-small-s1")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["finished"] == 1
