"""Users of VMs: their own numbers, which nobody else has."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.backends.emu import vm_users
from testbed.backends.emu.vm_users import (
    FIRST_ID,
    MOST_RANGES,
    RANGE_IDS,
    VmUsers,
    free_range,
    mapped_ids,
    used_ids,
)
from testbed.errors import MachineCannot
from testbed.plan.network_plan import network_plan
from topologies.tree import tree

ALL = [range(1 << 32)]
SLOTS = network_plan(tree([2, 2], 10**9, 2), "hn").slots


def test_each_vm_has_a_user_of_its_own() -> None:
    users = VmUsers(SLOTS, {})
    programs = [users.of_program(slot) for slot in SLOTS]
    assert len({user.uid for user in programs}) == len(SLOTS)
    assert all(user.uid == user.gid >= FIRST_ID for user in programs)
    assert {user.uid for user in programs}.isdisjoint(used_ids())
    assert [users.of_command(slot) for slot in SLOTS] == programs
    assert users.callers_id is None


def test_by_sudo_jobs_programs_are_of_their_callers_group_alone() -> None:
    users = VmUsers(SLOTS, {"SUDO_UID": "4321", "SUDO_GID": "4322"})
    programs = [users.of_command(slot) for slot in SLOTS]
    assert len({user.uid for user in programs}) == len(SLOTS)
    assert all(user.uid >= FIRST_ID for user in programs)
    assert {user.gid for user in programs} == {4322}
    assert all(users.of_program(slot).gid >= FIRST_ID for slot in SLOTS)
    assert users.callers_id == 4321


def test_root_by_sudo_is_no_caller_whose_files_programs_are() -> None:
    users = VmUsers(SLOTS, {"SUDO_UID": "0", "SUDO_GID": "0"})
    assert users.callers_id is None


def test_a_range_with_a_used_id_is_left_out() -> None:
    assert free_range({0, 65534}, ALL) == FIRST_ID
    last = FIRST_ID + RANGE_IDS - 1
    assert free_range({last}, ALL) == FIRST_ID + RANGE_IDS
    every = {FIRST_ID + k * RANGE_IDS for k in range(MOST_RANGES)}
    with pytest.raises(MachineCannot, match="user ids are free"):
        free_range(every, ALL)


def test_all_lines_of_a_map_count(tmp_path: Path) -> None:
    """As a container's that was given several ranges, the large one first."""
    user_map = tmp_path / "uid_map"
    user_map.write_text("0 100000 4294000000\n4294000000 1000 1\n")
    assert free_range({0}, mapped_ids(user_map)) == FIRST_ID


def test_a_range_may_go_on_in_the_next_line_but_has_no_gap() -> None:
    middle = FIRST_ID + 100
    joined = [range(middle), range(middle, 1 << 32)]
    assert free_range(set(), joined) == FIRST_ID
    parted = [range(middle), range(middle + 1, 1 << 32)]
    assert free_range(set(), parted) == FIRST_ID + RANGE_IDS


def test_where_a_container_has_few_ids_all_programs_are_of_one_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_map = tmp_path / "uid_map"
    user_map.write_text("         0     100000      65536\n")
    assert mapped_ids(user_map) == [range(65_536)]
    monkeypatch.setattr(vm_users, "USER_MAP", user_map)
    users = VmUsers(SLOTS, {"SUDO_UID": "4321", "SUDO_GID": "4322"})
    assert users.first_id is None
    assert users.callers_id is None
    users = VmUsers(SLOTS, {})
    assert {users.of_program(slot).name for slot in SLOTS} == {"nobody"}


def test_a_kernel_without_user_namespaces_maps_all_ids(
    tmp_path: Path,
) -> None:
    assert mapped_ids(tmp_path / "uid_map") == ALL
