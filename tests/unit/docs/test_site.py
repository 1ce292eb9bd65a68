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
from testbed.cli.command_line import VERBS, application
from tests.support.browser import browser
from tests.support.site_diagrams import (
    DESCRIPTION,
    STYLES,
    diagrams,
    picture_of,
    with_pictures,
)
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


@pytest.mark.slow
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


def test_every_diagram_has_its_pictures_and_a_description() -> None:
    wanted = set()
    for page in DOCS.rglob("*.md"):
        for text in diagrams(page):
            assert DESCRIPTION.search(text), page
            for style in STYLES:
                picture = picture_of(text, style)
                wanted.add(picture)
                drawn = picture.read_text("utf-8")
                assert "http" not in drawn.replace("http://www.w3.org", "")
                assert "foreignObject" not in drawn
    assert wanted
    assert set((DOCS / "figures").glob("diagram-*")) == wanted


def test_a_changed_diagram_needs_a_new_picture() -> None:
    page = DOCS / "architecture.md"
    text = page.read_text("utf-8")
    shown = with_pictures(text)
    assert "```mermaid" not in shown
    assert shown.count("```{image} /figures/diagram-") == len(STYLES)
    with pytest.raises(ValueError, match="is missing"):
        with_pictures(text.replace("flowchart TB", "flowchart LR"))


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
@pytest.mark.needs("browser")
def test_it_is_searched_from_a_file(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        page.look(1280, dark=False)
        page.open(f"file://{site}/search.html?q=oversubscription")
        text = page.wait_for("Search finished")
        results = text.split("Search finished", 1)[1]
        assert "Concepts, in ten minutes" in results
        assert page.errors() == []
        page.open(f"file://{site}/search.html?q=thereisnosuchword")
        page.wait_for("did not match any documents")
        assert page.errors() == []
        # As a reader comes there: from a page's own field.
        page.open(f"file://{site}/start.html")
        page.script(
            "const field = document.querySelector('input[name=q]');"
            "field.value = 'oktopus';"
            "field.form.submit();"
        )
        page.wait_for("Search finished")
        page.script("document.querySelector('ul.search a').click()")
        page.wait_for("ktopus")
        assert "search.html" not in page.driver.current_url
        assert page.errors() == []


@needs_sphinx
@pytest.mark.long
@pytest.mark.needs("browser")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_pages_show_their_pictures_without_a_console_error(
    site: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    with browser(tmp_path) as page:
        page.look(width, dark=dark)
        for name in ("index", "architecture", "commands/run", "interface"):
            page.open(f"file://{site}/{name}.html")
            missing = page.script(
                "return [...document.images].filter((image) =>"
                " !image.complete || image.naturalWidth === 0)"
                ".map((image) => image.src)"
            )
            assert missing == [], name
            assert page.script(
                "return document.documentElement.scrollWidth <= innerWidth"
            ), name
            assert page.errors() == [], name
        page.open(f"file://{site}/architecture.html")
        shown = page.script(
            "return [...document.querySelectorAll('img[src*=diagram-]')]"
            ".filter((image) => image.getBoundingClientRect().width > 0)"
            ".map((image) => image.src)"
        )
        style = "dark" if dark else "light"
        assert len(shown) == len(diagrams(DOCS / "architecture.md"))
        assert all(source.endswith(f"-{style}.svg") for source in shown)
        assert "flowchart" not in page.text()


@needs_sphinx
@pytest.mark.long
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
