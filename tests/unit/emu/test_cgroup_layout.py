"""Both versions of control groups are recognised from the kernel's own list of mounts."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from testbed.backends.emu import cgroups
from testbed.backends.emu.cgroups import read_layout

V1 = """\
24 1 0:20 / /sys rw,nosuid - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
"""
JOINED = """\
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
"""


def unified(folder: Path, controllers: str) -> str:
    """The mount of a version 2 hierarchy that offers these controllers."""
    (folder / "cgroup.controllers").write_text(controllers)
    return f"30 24 0:26 / {folder} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_1_with_one_mount_a_controller(tmp_path: Path) -> None:
    layout = read_layout(V1 + unified(tmp_path, "hugetlb"))
    assert layout.version == 1
    assert layout.mounts["cpu"] == Path("/sys/fs/cgroup/cpu")
    assert layout.mounts["freezer"] == Path("/sys/fs/cgroup/freezer")
    assert len(layout.roots) == 3


def test_version_1_with_controllers_together() -> None:
    layout = read_layout(JOINED)
    assert layout.version == 1
    assert layout.mounts["cpu"] == layout.mounts["cpuacct"]
    assert len(layout.roots) == 2


def test_version_2(tmp_path: Path) -> None:
    layout = read_layout(unified(tmp_path, "cpuset cpu io memory pids"))
    assert layout.version == 2
    assert layout.roots == (tmp_path,)


def test_version_2_without_the_cpu_controller_is_not_enough(
    tmp_path: Path,
) -> None:
    layout = read_layout(unified(tmp_path, "io memory"))
    assert layout.version == 0
    assert "cpu" in layout.lacking


def test_what_is_missing_is_named() -> None:
    layout = read_layout("".join(V1.splitlines(keepends=True)[:4]))
    assert layout.version == 0
    assert "freezer" in layout.lacking
    assert "cpuacct" not in layout.lacking


def test_a_top_group_that_takes_no_process_hands_it_to_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def write(path: Path, text: str) -> None:
        if path == tmp_path / "cgroup.procs":
            raise OSError(errno.EBUSY, "Device or resource busy")
        written.append(path)
        assert text == "7"

    monkeypatch.setattr(cgroups, "_write", write)
    monkeypatch.setattr(cgroups, "group_of", lambda *_, **__: "/init")
    cgroups._write_outside(tmp_path, 7)
    cgroups._write_outside(tmp_path / "v1", 7)
    assert written == [
        tmp_path / "init/cgroup.procs",
        tmp_path / "v1/cgroup.procs",
    ]


@pytest.mark.parametrize(
    ("main", "groups"),
    [
        ("/hosenet-main/1", ("/hosenet-main/1", "/hosenet/1")),
        (
            "/pod/x/hosenet-main/1",
            ("/pod/x/hosenet-main/1", "/pod/x/hosenet/1"),
        ),
        ("/hosenet-main/1/below", ()),
        ("/hosenet/1/node0/vm0", ()),
        ("/hosenet-main/", ()),
        ("/", ()),
    ],
)
def test_a_runs_vms_are_beside_its_own_processes(
    main: str, groups: tuple[str, ...]
) -> None:
    assert cgroups.groups_of_run(main) == groups
