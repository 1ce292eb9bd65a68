"""The roots of tests/vm: package sources moved to another release, and the checkout in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.distributions import ROOT

LISTED = """\
http://mirror.test/debian/|bookworm|main
http://mirror.test/debian/|bookworm-updates|main
http://mirror.test/security/|bookworm-security|main
http://elsewhere.test/node/|nodistro|main
"""


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tests/vm"))
    import debian_root

    monkeypatch.setattr(debian_root, "own_release", lambda: "bookworm")
    monkeypatch.setattr(debian_root, "told", lambda *_, **__: LISTED)
    yield debian_root
    sys.modules.pop("debian_root")


def test_other_releases_have_this_machines_archive_as_far_as_it_has_them(
    roots: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = tmp_path / "etc/apt/sources.list.d"
    entries.mkdir(parents=True)

    def update(*_: object) -> None:
        if (entries / "trixie-updates-main.list").exists():
            raise roots.Cannot("no such suite")

    monkeypatch.setattr(roots, "logged", update)
    roots.adopt_package_sources("trixie", tmp_path, tmp_path / "log")
    main = (tmp_path / "etc/apt/sources.list").read_text()
    assert main == "deb http://mirror.test/debian/ trixie main\n"
    assert {one.name: one.read_text() for one in entries.iterdir()} == {
        "trixie-security-main.list": "deb http://mirror.test/security/ trixie-security main\n"
    }


def test_a_laid_checkout_is_the_clone_and_keeps_its_environment(
    roots: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots, "logged", lambda *_: None)
    clone, root = tmp_path / "clone", tmp_path / "root"
    target = root / roots.ROOT_CHECKOUT
    for folder in (
        clone / "testbed",
        target / ".venv",
        target / "testbed/__pycache__",
    ):
        folder.mkdir(parents=True)
    (clone / "testbed/same.py").write_text("same")
    (clone / "link.yaml").symlink_to("testbed/same.py")
    roots.lay_checkout(clone, root, tmp_path / "log")
    kept = (target / "testbed/same.py").stat().st_mtime_ns
    (target / "testbed/gone.py").write_text("gone")
    (target / "folder").mkdir()

    (clone / "testbed/same.py").touch()
    roots.lay_checkout(clone, root, tmp_path / "log")
    assert (target / "testbed/same.py").stat().st_mtime_ns == kept
    found = {str(one.relative_to(target)) for one in target.rglob("*")}
    assert found == {
        ".venv",
        "link.yaml",
        "testbed",
        "testbed/__pycache__",
        "testbed/same.py",
    }
    assert (target / "link.yaml").is_symlink()
