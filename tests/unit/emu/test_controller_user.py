"""The controller's user: a number that nothing on this machine has."""

from __future__ import annotations

import os
import pwd

import pytest

from testbed.backends.emu import controller_user, emulation
from testbed.backends.emu.controller_user import UIDS, unused_uid
from testbed.backends.emu.emulation import LiveOptions, controller_uid
from testbed.spec.controller_choice import ControllerChoice


def test_it_is_nobodys() -> None:
    uid = unused_uid()
    assert uid is None or uid in UIDS
    assert uid not in (os.getuid(), 65534)


def test_numbers_with_an_account_or_a_process_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_user, "UIDS", [os.getuid()])
    assert unused_uid() is None
    monkeypatch.setattr(
        controller_user, "UIDS", [pwd.getpwnam("nobody").pw_uid]
    )
    assert unused_uid() is None


def test_a_persons_application_keeps_the_person_who_called_sudo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulation, "unused_uid", lambda: 61500)
    monkeypatch.setenv("SUDO_UID", "54321")
    monkeypatch.setenv("SUDO_GID", "54321")
    app = "/home/me/mine.py"
    assert controller_uid(LiveOptions()) == 61500
    assert (
        controller_uid(LiveOptions(controller=ControllerChoice((app,))))
        is None
    )
    assert (
        controller_uid(
            LiveOptions(controller=ControllerChoice((app,), confined=True))
        )
        == 61500
    )
    monkeypatch.delenv("SUDO_UID")
    assert (
        controller_uid(LiveOptions(controller=ControllerChoice((app,))))
        == 61500
    )
