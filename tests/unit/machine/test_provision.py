"""provision.sh as far as it can be shown without changing the machine; CI runs it for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROVISION = ROOT / "provision.sh"
SCRIPTS = (
    "provision.sh",
    ".ci/run",
    "requirements/lock",
    "tests/vm/guest",
    "tests/vm/datapath",
)
LOCKS = ("build", "run", "test")


def call(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that everybody may read, which pytest's own are not: root gives its rights up."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_help_names_every_verb_and_changes_nothing() -> None:
    shown = call(PROVISION, "help")
    assert shown.returncode == 0
    assert re.findall(r"^  (\w+) ", shown.stdout, re.MULTILINE) == [
        "install", "run", "test", "doctor", "uninstall", "help"
    ]  # fmt: skip


def test_an_unknown_verb_is_a_usage_error() -> None:
    refused = call(PROVISION, "instal")
    assert refused.returncode == 2
    assert "unknown verb: instal" in refused.stderr


@pytest.mark.parametrize("verb", ["install", "run", "test", "uninstall"])
def test_without_root_it_names_the_command_that_works(verb: str, anyones: Path) -> None:
    script = anyones / "provision.sh"
    shutil.copy(PROVISION, script)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    refused = call(script, verb, **nobody)
    assert refused.returncode == 3
    assert f"sudo {script} {verb}" in refused.stderr


def test_doctor_before_install_gives_the_hint(tmp_path: Path) -> None:
    script = tmp_path / "provision.sh"
    shutil.copy(PROVISION, script)
    refused = call(script, "doctor")
    assert refused.returncode == 3
    assert f"sudo {script} install" in refused.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_pass_shellcheck(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    found = call("shellcheck", ROOT / name)
    assert found.stdout == ""
    assert found.returncode == 0


def pinned(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+) \\$", text, re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text)[1:] if not text[0].isalnum() else [text]
    assert len(entries) == len(pinned(lock)) > 0
    assert [e.split("==")[0] for e in entries if "--hash=sha256:" not in e] == []
    assert "://" not in text


def test_the_locks_cover_pyproject_and_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    run, test = pinned("run"), pinned("test")

    def missing(requirements: list[str], lock: dict[str, str]) -> list[str]:
        names = [re.split(r"[^A-Za-z0-9._-]", entry)[0] for entry in requirements]
        return [n for n in names if re.sub(r"[-_.]+", "-", n).lower() not in lock]

    assert missing([*project["dependencies"], *extras["ryu"], *extras["os-ken"]], run) == []
    assert missing([*extras["test"], *extras["dev"]], test) == []
    assert {n: v for n, v in test.items() if run.get(n, v) != v} == {}


def test_ryu_builds_with_the_setuptools_it_can_stand() -> None:
    major = int(pinned("build")["setuptools"].split(".")[0])
    assert major < 68


def test_vagrant_accepts_the_vagrantfile(tmp_path: Path) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("no vagrant")
    shutil.copy(ROOT / "Vagrantfile", tmp_path)
    environment = {**os.environ, "VAGRANT_HOME": str(tmp_path / "home")}
    told = call("vagrant", "validate", "--ignore-provider", cwd=tmp_path, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Vagrantfile validated successfully." in told.stdout
