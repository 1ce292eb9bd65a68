"""The public names, their parameters and types are those written down; a change is seen here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
import topologies
from tests.support.public_names import NOTE, public_names, stored


def test_names_and_signatures_are_those_written_down() -> None:
    assert public_names() == stored(), NOTE


def test_a_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(folder: str, *, lenient: bool = False) -> None: ...

    monkeypatch.setattr(testbed.Run, "plot", renamed)
    monkeypatch.delattr(testbed.Comparison, "sentences")
    monkeypatch.setattr(testbed.BadInput, "exit_code", 5)
    changed = public_names()
    assert stored().keys() - changed.keys() == {"Comparison.sentences"}
    differing = {
        name for name, text in changed.items() if stored()[name] != text
    }
    assert differing == {
        "Run.plot",
        "BadInput.exit_code",
        "SpecErrors.exit_code",
    }


def test_every_public_thing_is_typed_and_described() -> None:
    for name, text in public_names().items():
        assert (
            text.startswith(("class(", "str"))
            or "->" in text
            or text.isdigit()
        ), (name, text)
    for name in testbed.__all__:
        assert getattr(testbed, name).__doc__, name


def test_importing_it_loads_nothing_else() -> None:
    code = (
        "import sys, testbed; print(dir(testbed) == testbed.__all__);"
        "print([name for name in sys.modules if name.startswith('testbed.')],"
        " [name for name in ('pandas', 'pyarrow', 'matplotlib', 'distributed', 'numpy')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n[] []\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(
        AttributeError, match="module 'testbed' has no attribute 'simulate'"
    ):
        _ = testbed.simulate  # type: ignore[attr-defined]


@pytest.mark.long
def test_other_programs_are_checked_against_the_types(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import testbed\n"
        'run = testbed.load("a.yaml").simulate(progress=True)\n'
        "reveal_type(run)\n"
        'testbed.load("a.yaml").simulate(progres=True)\n'
    )
    packages = (
        tmp_path / "packages"
    )  # as an environment has them: only what is marked is typed
    packages.mkdir()
    for package in (testbed, topologies):
        (packages / package.__name__).symlink_to(
            Path(str(package.__file__)).parent
        )
    code = (
        "import sys; from mypy import api; print(api.run(sys.argv[1:])[0])"
    )
    options = [
        "--config-file=",
        "--ignore-missing-imports",
        f"--cache-dir={tmp_path / 'cache'}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *options, "--follow-imports=silent", str(script)],
        check=True, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "MYPYPATH": "", "PYTHONPATH": str(packages)},
    )  # fmt: skip
    assert (
        'Revealed type is "testbed.interface.finished_run.Run"'
        in done.stdout
    )
    assert 'Unexpected keyword argument "progres"' in done.stdout
