"""tests/vm/enter: the command's root, folders, network and exit code, in a root made of /usr."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.distributions import ROOT

VM = ROOT / "tests/vm"
FOLDERS = ("usr", "etc", "mnt", "proc", "sys", "dev", "run", "tmp")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of empty folders; this machine's /usr is mounted there as it is entered."""
    root = tmp_path / "root"
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    return root


def entered(
    root: Path, *command: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    mounted = 'mount --bind /usr "$1/usr" && exec "$0" "$@"'
    return subprocess.run(
        ("unshare", "--mount", "sh", "-c", mounted, VM / "enter", root, *command),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


@pytest.fixture
def chroot(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(VM))
    loader = importlib.machinery.SourceFileLoader(
        "vm_chroot", str(VM / "chroot")
    )
    spec = importlib.util.spec_from_loader("vm_chroot", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules["vm_chroot"] = module
    loader.exec_module(module)
    yield module
    for name in ("vm_chroot", "debian_root"):
        sys.modules.pop(name)


def test_the_commands_exit_code_is_handed_on(root: Path) -> None:
    done = entered(
        root, "sh", "-c", "ls /; hostname; ip -brief link; exit 7"
    )
    assert done.returncode == 7
    *folders, name, link = done.stdout.splitlines()
    assert (
        set(FOLDERS)
        <= set(folders)
        <= {*FOLDERS, "bin", "sbin", "lib", "lib64"}
    )
    assert name == "debian-root"
    assert link.split()[0] == "lo"


def test_without_its_network_the_command_is_not_run(root: Path) -> None:
    done = entered(
        root, "echo", "ran", ENTER_DEVICE="tap7", ENTER_WAIT_S="1"
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "no network came to the device tap7 within 1 s" in done.stderr


def test_folders_of_data_are_at_the_same_place(
    root: Path,
    tmp_path: Path,
    chroot: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = [tmp_path / "data" / name for name in ("one", "two")]
    for folder in data:
        folder.mkdir(parents=True)
        (folder / "trace").write_text(folder.name)
    listed = (*map(str, data), "relative", str(tmp_path / "missing"))
    monkeypatch.setenv("TESTBED_DATA", ":".join(listed))
    monkeypatch.setenv("ENTER_FOLDERS", "")
    chroot.bind_data(root)
    done = entered(root, "cat", *(str(folder / "trace") for folder in data))
    assert (done.returncode, done.stdout) == (0, "onetwo"), done.stderr
    assert f"TESTBED_DATA={':'.join(listed)}" in chroot.by_sudo()
    assert [
        entry.name for entry in (root / str(data[0]).lstrip("/")).iterdir()
    ] == []
