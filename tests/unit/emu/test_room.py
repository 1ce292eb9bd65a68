"""A network that does not fit this machine is refused, with numbers and a hint; nothing is made."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.backends.emu import emulation, machine_checks
from testbed.backends.emu.cgroups import CgroupLayout
from testbed.backends.emu.emulation import LiveOptions, emulate
from testbed.errors import MachineCannot
from testbed.plan.network_plan import network_plan
from testbed.spec.experiment import Scale
from topologies.fat_tree import fat_tree

PLENTY = (1 << 20,) * 4
SMALL = network_plan(fat_tree(4, 1_000_000_000, 2))
LARGE = network_plan(fat_tree(8, 1_000_000_000, 4))


@pytest.fixture
def files() -> Iterator[None]:
    """The limit of open files as it was."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_ports_parts_and_agents_need_more_of_everything() -> None:
    small, large = (
        machine_checks.needed(SMALL, 32),
        machine_checks.needed(LARGE, 448),
    )
    assert all(map(int.__lt__, small, large))
    assert machine_checks.needed(LARGE, 0)[0] < large[0]
    # Half a gigabyte of daemons and ports, and agents of 3.5 MB.
    assert 1500 < large[0] < 2500


@pytest.mark.parametrize(
    ("short", "what", "hint"),
    [
        (0, "MiB of memory", "slots_per_server"),
        (1, "network namespaces", "max_net_namespaces"),
        (2, "processes", "pid_max"),
        (3, "open files", "ulimit"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_is_short_is_named_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch, short: int, what: str, hint: str
) -> None:
    need = machine_checks.needed(LARGE, 448)
    have = [*PLENTY]
    have[short] = need[short] - 1
    monkeypatch.setattr(machine_checks, "room", lambda _: tuple(have))
    with pytest.raises(MachineCannot) as refused:
        machine_checks.require_room(LARGE, 448)
    expected = f"the network needs {need[short]:,} {what}, {need[short] - 1:,} are left"
    assert refused.value.message.startswith(expected)
    assert hint in str(refused.value.hint)
    have[short] += 1
    machine_checks.require_room(LARGE, 448)


def test_a_live_run_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made(*_: object) -> None:
        pytest.fail("something is made")

    monkeypatch.setattr(
        machine_checks, "room", lambda _: (100, *PLENTY[1:])
    )
    monkeypatch.setattr(emulation, "machine_lock", lambda _: nullcontext())
    monkeypatch.setattr(emulation, "clean_leftovers", list)
    monkeypatch.setattr(emulation.CleanupJournal, "create", made)
    options = LiveOptions()
    with (
        pytest.raises(MachineCannot, match="MiB of memory, 100 are left"),
        emulate(
            fat_tree(4, 1_000_000_000, 2),
            Scale(),
            options,
            tmp_path,
            "x",
            n_agents=32,
        ),
    ):
        pytest.fail("it is up")


@pytest.mark.usefixtures("files")
def test_a_process_may_open_as_many_files_as_the_network_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Looked up before: below the limit of 64 no file may be opened where other
    # tests have left as many open.
    layout = machine_checks.probe_layout()
    left = machine_checks.room(layout)
    monkeypatch.setattr(machine_checks, "probe_layout", lambda: layout)
    monkeypatch.setattr(machine_checks, "room", lambda _: left)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    machine_checks.require_room(SMALL, 0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (
        machine_checks.needed(SMALL, 0)[3],
        hard,
    )
    machine_checks.require_room(
        network_plan(fat_tree(2, 1_000_000_000, 1)), 0
    )  # never fewer than there are
    assert (
        resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        == machine_checks.needed(SMALL, 0)[3]
    )


# ------------------------------------------------------------------------ what the machine has left


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """8,000 MiB free, 50 processes of at most 300, 1,000 namespaces: a /proc/sys and its groups."""
    available = SimpleNamespace(available=8000 << 20)
    monkeypatch.setattr(
        machine_checks.psutil, "virtual_memory", lambda: available
    )
    monkeypatch.setattr(
        machine_checks.psutil, "pids", lambda: list(range(50))
    )
    for name, number in (
        ("kernel/pid_max", 300),
        ("user/max_net_namespaces", 1000),
    ):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f"{number}\n")
    return tmp_path


def group(folder: Path, **contents: str) -> Path:
    folder = folder / "cgroup"
    folder.mkdir()
    for name, text in contents.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_without_groups_the_machine_counts(machine: Path) -> None:
    assert machine_checks.room(CgroupLayout(0), machine)[:3] == (
        8000,
        1000,
        250,
    )


@pytest.mark.parametrize(
    ("most", "left_mib"), [("max", 8000), (str(2 << 30), 1848)]
)
def test_a_containers_limits_count_without_its_page_cache(
    machine: Path, most: str, left_mib: int
) -> None:
    stat = f"anon {200 << 20}\nfile {1 << 30}\n"
    path = group(
        machine,
        memory__max=f"{most}\n",
        memory__stat=stat,
        pids__max="120\n",
    )
    layout = CgroupLayout(2, {"cpu": path, "memory": path})
    assert machine_checks.room(layout, machine)[:3] == (left_mib, 1000, 70)


def test_version_1_has_other_names(machine: Path) -> None:
    stat = f"rss 1\ntotal_rss {200 << 20}\ntotal_cache {1 << 30}\n"
    path = group(
        machine, memory__limit_in_bytes=f"{1 << 30}\n", memory__stat=stat
    )
    assert (
        machine_checks.room(CgroupLayout(1, {"memory": path}), machine)[0]
        == 824
    )


def test_a_topmost_group_may_have_no_statistics(machine: Path) -> None:
    path = group(machine, cgroup__controllers="cpu memory\n")
    layout = CgroupLayout(2, {"cpu": path, "memory": path})
    assert machine_checks.room(layout, machine)[0] == 8000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory_mib", "namespaces", "k"), [(50, 4096, 0), (900, 4096, 6)]
)
def test_the_doctor_knows_the_largest_network(
    memory_mib: int, namespaces: int, k: int
) -> None:
    have = (memory_mib, namespaces, *PLENTY[2:])
    assert machine_checks.largest_fat_tree(have) == k


@pytest.mark.slow
def test_few_namespaces_make_the_largest_network_smaller() -> None:
    assert machine_checks.largest_fat_tree((1 << 20, 40, *PLENTY[2:])) == 4
    assert machine_checks.largest_fat_tree(PLENTY) == 16
