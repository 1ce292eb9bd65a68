"""Hints are true in a checkout, and beside a wheel, which has no provision.sh."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from testbed import errors
from testbed.backends.emu import machine_checks
from testbed.backends.emu.machine_checks import MachineCheck
from testbed.cli import main, options

ROOT = Path(__file__).parents[3]
HERE, THERE = (
    "sudo ./provision.sh install",
    "in a checkout of Hosenet or in its unpacked hosenet-",
)


@pytest.fixture
def from_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        errors, "__file__", str(tmp_path / "testbed" / "errors.py")
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)


def test_a_checkout_names_the_command() -> None:
    assert errors.from_checkout()
    assert errors.install_hint() == HERE


def test_a_wheel_says_where_the_command_is(from_wheel: None) -> None:
    assert not errors.from_checkout()
    assert errors.install_hint().startswith(f"{HERE}, {THERE}")


def test_a_live_verb_of_a_wheel_is_refused_in_one_sentence(
    from_wheel: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        errors.MachineCannot,
        match=r"needs root and what provision\.sh installs",
    ):
        options.require_root("testbed run x.yaml")
    assert main.run(["down"]) == 3
    assert THERE in capsys.readouterr().err


@pytest.mark.slow
def test_doctor_of_a_wheel_ends_in_the_place_of_the_command(
    from_wheel: None,
) -> None:
    assert (
        THERE
        in machine_checks.verdict(
            [MachineCheck("tc", "fail", "tc is missing")]
        )[1]
    )
    assert (
        machine_checks.examine()[0].hint
        == 'sudo "$(command -v testbed)" doctor'
    )


@pytest.mark.slow
def test_no_module_writes_the_command_itself() -> None:
    found = []
    for path in sorted((ROOT / "testbed").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and "./provision.sh" in text:
                found.append(path.name)
    assert found == ["errors.py"]
