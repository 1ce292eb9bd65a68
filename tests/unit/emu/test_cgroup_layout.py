"""Both versions of control groups are recognised from the kernel's own list of mounts."""

from __future__ import annotations

from pathlib import Path

from testbed.backends.emu.cgroups import read_layout

V1 = """\
24 1 0:20 / /sys rw,nosuid - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
JOINED = """\
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
"""
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_1_with_one_mount_a_controller() -> None:
    layout = read_layout(V1, {Path("/sys/fs/cgroup/unified"): "hugetlb"})
    assert layout.version == 1
    assert layout.mount("cpu") == Path("/sys/fs/cgroup/cpu")
    assert layout.mount("freezer") == Path("/sys/fs/cgroup/freezer")
    assert len(layout.roots) == 3


def test_version_1_with_controllers_together() -> None:
    layout = read_layout(JOINED, {})
    assert layout.version == 1
    assert layout.mount("cpu") == layout.mount("cpuacct")
    assert len(layout.roots) == 2


def test_version_2() -> None:
    layout = read_layout(V2, {Path("/sys/fs/cgroup"): "cpuset cpu io memory pids"})
    assert layout.version == 2
    assert layout.roots == (Path("/sys/fs/cgroup"),)


def test_version_2_without_the_cpu_controller_is_not_enough() -> None:
    layout = read_layout(V2, {Path("/sys/fs/cgroup"): "io memory"})
    assert layout.version == 0
    assert "cpu" in layout.lacking


def test_what_is_missing_is_named() -> None:
    layout = read_layout("".join(V1.splitlines(keepends=True)[:4]), {})
    assert layout.version == 0
    assert "freezer" in layout.lacking
    assert "cpuacct" not in layout.lacking
