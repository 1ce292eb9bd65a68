"""The site: pages of the code are whole, it builds without a warning, and is searched
from a file.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed.cli.main import VERBS, application
from tests.support.browser import browser
from tests.support.site_pages import (
    index_page,
    interface_page,
    verb_page,
    write_pages,
)

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SPHINX = (
    sys.executable,
    "-m",
    "sphinx",
    "--fail-on-warning",
    "--keep-going",
    "--quiet",
)
needs_sphinx = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None
    or importlib.util.find_spec("myst_parser") is None,
    reason="no Sphinx (pip install -r requirements/site.txt)",
)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_a_page_with_all_its_options(verb: str) -> None:
    page = verb_page(verb)
    assert page.startswith(f"# testbed {verb}\n")
    command = application([verb]).commands[verb]  # type: ignore[attr-defined]
    parts = getattr(command, "commands", {"": command})
    for name, part in parts.items():
        assert f"\ntestbed {verb} {name}".rstrip() in page
        for parameter in part.params:
            if getattr(parameter, "hidden", False):
                continue
            if parameter.param_type_name == "option":
                assert parameter.opts[0] in page
            assert parameter.help


def test_lists_name_every_verb_and_every_public_name() -> None:
    listed = index_page()
    for verb, summary in VERBS.items():
        assert f"({verb}.md)" in listed
        assert summary.split(".", maxsplit=1)[0][:40] in listed
    names = set(testbed.__all__) - {"__version__"}
    page = interface_page()
    for name in names:
        assert f"\n## {name}\n" in page


def test_pages_that_are_as_they_were_are_not_written_again(
    tmp_path: Path,
) -> None:
    first = {
        path: path.stat().st_mtime_ns for path in write_pages(tmp_path)
    }
    again = {
        path: path.stat().st_mtime_ns for path in write_pages(tmp_path)
    }
    assert first == again
    assert len(first) == len(VERBS) + 2


def built(
    builder: str, docs: Path, to: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPHINX, "-b", builder, str(docs), str(to)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built("html", DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder


@needs_sphinx
@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_builds_without_a_warning_and_loads_nothing(site: Path) -> None:
    for page in (site / "index.html", site / "commands" / "run.html"):
        text = page.read_text("utf-8")
        for loaded in (
            'src="http',
            'href="https://fonts',
            "@import url(http",
        ):
            assert loaded not in text


@needs_sphinx
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.needs("browser")
def test_it_is_searched_from_a_file(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        page.look(1280, dark=False)
        page.open(f"file://{site}/search.html?q=oversubscription")
        text = page.wait_for("Search finished")
        found = text.split("Search finished", 1)[1]
        assert "Concepts, in ten minutes" in found
        assert page.errors() == []


@needs_sphinx
@pytest.mark.long
@pytest.mark.timeout(600)
def test_manual_pages_are_those_of_the_verbs(tmp_path: Path) -> None:
    done = built("man", DOCS, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.name for path in tmp_path.rglob("*.1")}
    assert pages == {"testbed.1", *(f"testbed-{verb}.1" for verb in VERBS)}
    if shutil.which("man") is None:
        return
    file = next(tmp_path.rglob("testbed-share.1"))
    shown = subprocess.run(
        ["man", "--pager=cat", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={
            "MANWIDTH": "80",
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
        },
    ).stdout
    assert "testbed share [OPTIONS] RUN" in shown
    assert "--json" in shown
