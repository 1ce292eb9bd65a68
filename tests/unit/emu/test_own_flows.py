"""A person's controller from the testbed's side: connected, ended, in trouble."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.backends.emu import open_vswitch, own_flows
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.own_flows import OwnController
from testbed.errors import RunFailed
from testbed.spec.controller_choice import ControllerChoice

LOG = """\
2026-11-23 06:57:46,408 INFO app: up
Traceback (most recent call last):
  File "mine.py", line 5, in on_switch
    missing
    ^^^^^^^
NameError: name 'missing' is not defined
hub: uncaught exception: Traceback (most recent call last):
  File "mine.py", line 9, in loop
KeyError: 5
2026-11-23 06:57:47,408 INFO app: Traceback of nothing
"""


def own(
    folder: Path,
    unconnected: Any = list,
    code: int | None = None,
    log: str = "",
) -> OwnController:
    path = folder / "controller.log"
    path.write_text(log)
    process: Any = SimpleNamespace(
        process=SimpleNamespace(poll=lambda: code)
    )
    network: Any = SimpleNamespace(unconnected_bridges=unconnected)
    choice = ControllerChoice(("/home/me/mine.py",))
    return OwnController(choice, path, process, network)


def test_it_waits_until_every_bridge_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_flows, "POLL_S", 0.0)
    replies = iter([["hn-s0", "hn-s1"], ["hn-s1"], []])
    own(tmp_path, lambda: next(replies)).wait_connected(timeout_s=3600)
    assert next(replies, None) is None


def test_bridges_that_never_connect_are_named(tmp_path: Path) -> None:
    mine = own(tmp_path, lambda: ["hn-s0", "hn-s1", "hn-s2"])
    with pytest.raises(
        RunFailed, match=r"mine.py: bridge hn-s0 and 2 more not connected"
    ) as caught:
        mine.wait_connected(timeout_s=-1)
    assert str(tmp_path / "controller.log") in str(caught.value.hint)


def test_one_that_has_ended_is_named_with_its_last_error(
    tmp_path: Path,
) -> None:
    own(tmp_path).check()
    with pytest.raises(
        RunFailed, match=r"mine.py has ended with -9: KeyError: 5"
    ):
        own(tmp_path, code=-9, log=LOG).check()
    with pytest.raises(RunFailed, match=r"mine.py has ended with 1(\n|$)"):
        own(tmp_path, lambda: ["hn-s0"], code=1).wait_connected(
            timeout_s=3600
        )


def test_errors_of_its_log_are_counted(tmp_path: Path) -> None:
    assert own(tmp_path).trouble == ""
    mine = own(tmp_path, log=LOG)
    assert mine.errors() == [
        "NameError: name 'missing' is not defined",
        "KeyError: 5",
    ]
    assert mine.trouble == f"2 errors in {mine.log}, the last KeyError: 5"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    long = LOG + "x" * (own_flows.LOG_TAIL_BYTES + 1) + "\n" + LOG
    assert len(own(tmp_path, log=long).errors()) == 2


def test_no_file_that_the_caller_puts_in_the_logs_place_is_read(
    tmp_path: Path,
) -> None:
    """Root reads the log, in a folder of the caller's."""
    secret = tmp_path / "secret"
    secret.write_text(LOG)
    ended = own(tmp_path, code=1)
    mine = own(tmp_path)
    mine.log.unlink()
    mine.log.symlink_to(secret)
    assert mine.trouble.startswith(f"{mine.log} cannot be read: ")
    assert mine.findings(1)[-1].level == "suspect"
    with pytest.raises(RunFailed, match=r"mine.py has ended with 1(\n|$)"):
        ended.check()
    mine.log.unlink()
    # Nobody writes to it: a reader that opens it as a file waits for ever.
    os.mkfifo(mine.log)
    assert mine.trouble == f"{mine.log} cannot be read: not a regular file"


def test_a_log_that_grows_meanwhile_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_flows, "LOG_TAIL_BYTES", len(LOG))
    mine = own(tmp_path, log=LOG)
    size = os.fstat

    def grown(descriptor: int) -> os.stat_result:
        status = size(descriptor)
        with mine.log.open("a") as file:
            file.write(LOG)
        return status

    monkeypatch.setattr(own_flows.os, "fstat", grown)
    assert len(mine.errors()) == 2


def test_flows_of_others_are_no_fault_but_where_they_may_leave_the_reserved_links(
    tmp_path: Path,
) -> None:
    (tree,) = own(tmp_path).findings(n_trees=1)
    assert (tree.level, tree.check) == ("ok", "flows")
    assert "/home/me/mine.py" in tree.reason
    (fat_tree,) = own(tmp_path).findings(n_trees=4)
    assert fat_tree.level == "suspect"
    assert "one of 4 trees" in fat_tree.reason
    assert [each.level for each in own(tmp_path, log=LOG).findings(1)] == [
        "ok",
        "suspect",
    ]


def test_connected_is_what_the_switch_says_of_each_bridge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {
        "Controller": [
            [["uuid", "c0"], True],
            [["uuid", "c1"], False],
            [["uuid", "of others"], True],
        ],
        "Bridge": [
            ["hn-s0", ["uuid", "c0"]],
            ["hn-s1", ["uuid", "c1"]],
            ["hn-s2", ["set", []]],
            ["foreign", ["uuid", "of others"]],
        ],
    }
    monkeypatch.setattr(
        open_vswitch.SwitchDaemons,
        "rows",
        lambda _, table, *_rest: tables[table],
    )
    assert MACHINE.controlled() == {"hn-s0", "foreign"}
