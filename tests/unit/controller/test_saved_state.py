from __future__ import annotations

import stat
from pathlib import Path

import pytest

from controller.control_plane import ControlPlane
from controller.saved_state import StateStore
from controller.values import DesiredState, InvalidValues, Tenant
from tests.support.fake_datacentre import tree_datacentre

DATACENTRE = tree_datacentre([2, 2], slots_per_server=2)


def a_tenant(tenant_id: int, first: int = 0) -> Tenant:
    return DATACENTRE.tenant(
        tenant_id, DATACENTRE.slots[first : first + 3], lambda _count: 0
    )


def test_nothing_saved_is_nothing_loaded(tmp_path: Path) -> None:
    assert StateStore.at(tmp_path).load() == DesiredState()


def test_a_new_plane_stands_where_the_old_one_did(tmp_path: Path) -> None:
    plane = ControlPlane(StateStore.at(tmp_path))
    plane.put_network(DATACENTRE.switches)
    for tenant_id, first in ((7, 0), (10, 3)):
        plane.add_tenant(a_tenant(tenant_id, first), 0)
    assert ControlPlane(StateStore.at(tmp_path)).state == plane.state
    plane.remove_tenant(7, 0)
    again = ControlPlane(StateStore.at(tmp_path))
    assert again.state == plane.state
    assert [tenant.id for tenant in again.state.tenants] == [10]
    assert again.view()["tenants"] == plane.view()["tenants"]


def test_files_are_for_the_owner_only_and_nothing_else_is_left(
    tmp_path: Path,
) -> None:
    store = StateStore.at(tmp_path)
    store.save_network(DATACENTRE.switches)
    store.save_tenant(a_tenant(7))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "network.json",
        "tenant-7.json",
    ]
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()
    } == {0o600}


def test_a_write_that_was_cut_off_is_as_if_it_had_not_begun(
    tmp_path: Path,
) -> None:
    store = StateStore.at(tmp_path)
    store.save_network(DATACENTRE.switches)
    before = store.load()
    (tmp_path / "tenant-7.json.unfinished").write_text('{"id": 7, "na')
    assert store.load() == before
    assert not (tmp_path / "tenant-7.json.unfinished").exists()


@pytest.mark.parametrize("text", ["", "{", '{"id": 7}'])
def test_a_file_that_makes_no_sense_is_named(
    tmp_path: Path, text: str
) -> None:
    store = StateStore.at(tmp_path)
    store.save_network(DATACENTRE.switches)
    path = tmp_path / "tenant-7.json"
    path.write_text(text)
    with pytest.raises(
        InvalidValues, match=r"tenant-7\.json: .*remove the file"
    ):
        store.load()
    path.unlink()
    (tmp_path / "network.json").write_text(text)
    with pytest.raises(
        InvalidValues, match=r"network\.json: .*remove the file"
    ):
        store.load()


def test_a_tenant_in_another_ones_file_is_named(tmp_path: Path) -> None:
    store = StateStore.at(tmp_path)
    store.save_network(DATACENTRE.switches)
    store.save_tenant(a_tenant(7))
    (tmp_path / "tenant-7.json").rename(tmp_path / "tenant-5.json")
    with pytest.raises(
        InvalidValues, match=r"tenant-5\.json: it holds tenant 7; remove"
    ):
        store.load()


def test_files_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    store = StateStore.at(tmp_path)
    store.save_network(DATACENTRE.switches[:1])
    store.save_tenant(a_tenant(7))
    with pytest.raises(
        InvalidValues,
        match=r"tenant-7\.json: switch .* is not in the network",
    ):
        store.load()


def test_the_directory_may_be_out_of_reach_once_it_is_open(
    tmp_path: Path,
) -> None:
    (tmp_path / "deep").mkdir()
    store = StateStore.at(tmp_path / "deep")
    (tmp_path / "deep").rename(tmp_path / "moved")
    store.save_network(DATACENTRE.switches)
    assert store.load().switches == DATACENTRE.switches
    assert (tmp_path / "moved" / "network.json").exists()


def test_what_cannot_be_saved_has_not_happened(tmp_path: Path) -> None:
    plane = ControlPlane(StateStore.at(tmp_path))
    plane.put_network(DATACENTRE.switches)
    plane.add_tenant(a_tenant(7), 0)
    before = plane.view()
    (tmp_path / "tenant-7.json").unlink()
    for name in (
        "tenant-7.json",
        "tenant-8.json.unfinished",
        "network.json.unfinished",
    ):
        (
            tmp_path / name
        ).mkdir()  # A directory is neither unlinked nor written to.
    with pytest.raises(OSError, match="directory"):
        plane.add_tenant(a_tenant(8, 3), 0)
    with pytest.raises(OSError, match="directory"):
        plane.put_network(DATACENTRE.switches)
    with pytest.raises(OSError, match="directory"):
        plane.remove_tenant(7, 0)
    assert plane.view() == before
