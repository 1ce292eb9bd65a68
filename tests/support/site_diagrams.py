"""Diagrams of the site: Mermaid's text in ``docs`` as stored pictures.

    python -m tests.support.site_diagrams MERMAID_JS

draws those that have no picture yet, with the ``dist/mermaid.min.js`` of npm's
package ``mermaid`` in Debian's Chromium, and removes those of texts that are no
longer there. The site shows the pictures, and so needs neither that script nor
a network; where pages are read as they are in the repository, its host draws the
text.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.support.browser import Browser, browser

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DESCRIPTION = re.compile(r"^\s*accDescr: (.*)$", re.MULTILINE)
STYLES = {"light": "neutral", "dark": "dark"}
"""Mermaid's themes, by those of the site."""
DRAW = """
const [text, theme, done] = arguments;
mermaid.initialize({
  startOnLoad: false, theme, htmlLabels: false, deterministicIds: true,
  flowchart: {htmlLabels: false}, fontFamily: 'DejaVu Sans, sans-serif',
});
mermaid.render('diagram', text).then(
  (made) => done(made.svg), (error) => done(`error: ${error}`));
"""


def diagrams(page: Path) -> list[str]:
    """The texts of a page's diagrams."""
    return BLOCK.findall(page.read_text("utf-8"))


def picture_of(text: str, style: str) -> Path:
    """The file of a diagram's picture, which is another one for another text."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return FIGURES / f"diagram-{digest}-{style}.svg"


def with_pictures(page: str) -> str:
    """A page of ``docs`` with pictures in place of its diagrams' texts.

    Raises ValueError where a diagram has no picture, or no description.
    """
    return BLOCK.sub(lambda block: _shown(block[1]), page)


def _shown(text: str) -> str:
    described = DESCRIPTION.search(text)
    if described is None:
        raise ValueError(f"a diagram has no accDescr: {text}")
    parts = []
    for style in STYLES:
        picture = picture_of(text, style)
        if not picture.exists():
            raise ValueError(
                f"{picture.name} is missing: python -m tests.support.site_diagrams"
            )
        parts += [
            f"```{{image}} /{picture.relative_to(DOCS)}",
            f":alt: {described[1]}",
            f":class: only-{style}",
            "```",
            "",
        ]
    return "\n".join(parts)


def make(mermaid: Path) -> None:
    """Raises RuntimeError where Mermaid does not draw a text."""
    wanted = set()
    texts = []
    for page in sorted(DOCS.rglob("*.md")):
        texts += diagrams(page)
    with tempfile.TemporaryDirectory() as scratch:
        paper = Path(scratch) / "paper.html"
        script = mermaid.resolve().as_uri()
        paper.write_text(f'<!DOCTYPE html><script src="{script}"></script>')
        with browser(Path(scratch) / "profile") as page:
            page.open(paper.as_uri())
            for text in texts:
                for style, theme in STYLES.items():
                    picture = picture_of(text, style)
                    wanted.add(picture)
                    picture.write_text(_drawn(page, text, theme), "utf-8")
    for picture in FIGURES.glob("diagram-*.svg"):
        if picture not in wanted:
            picture.unlink()


def _drawn(page: Browser, text: str, theme: str) -> str:
    svg: str = page.driver.execute_async_script(DRAW, text, theme)
    if not svg.startswith("<svg"):
        raise RuntimeError(svg)
    box = ElementTree.fromstring(svg).attrib["viewBox"]  # noqa: S314
    _, _, width, height = map(float, box.split())
    # As an image it has the size that it says, not its page's.
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return svg.replace('width="100%"', size, 1) + "\n"


if __name__ == "__main__":
    make(Path(sys.argv[1]))
