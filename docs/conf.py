"""Sphinx builds the site and the manual pages of these pages: ``make site man``.

Why Sphinx is in decision 46.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from testbed.cli.command_line import VERBS  # noqa: E402 - found by the line above
from testbed.version import installed_version  # noqa: E402
from tests.support.site_diagrams import with_pictures  # noqa: E402
from tests.support.site_pages import COMMANDS, write_pages  # noqa: E402

project = "Hosenet"
author = "the authors of Hosenet"
version = release = installed_version()
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]

# Headings have the anchors that GitHub gives them.
myst_heading_anchors = 6
myst_enable_extensions = ["deflist"]
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_display_short_literal_types = True
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "Hosenet"
html_static_path = ["site"]
html_css_files = ["wide-tables.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# A page opened from a file may not fetch the excerpts.
html_show_search_summary = False

man_pages = [
    (f"{COMMANDS}/{verb}", f"testbed-{verb}", summary, "", 1)
    for verb, summary in VERBS.items()
]
man_pages.append(
    (
        f"{COMMANDS}/index",
        "testbed",
        "data-centre schedulers that reserve bandwidth, on a real network",
        "",
        1,
    )
)


CHILDREN = """

```{toctree}
:hidden:
:glob:

[0-9a-z]*
```
"""
"""For pages over a folder's, which list these by a table of their own."""
OVER_A_FOLDER = ("papers/README", "decisions/README")


LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)[^)\s]*\)")


def prepare(_: Any, name: str, source: list[str]) -> None:
    """Puts the pages of a folder below the one that lists them, shows diagrams
    as their pictures, and names the checkout's other files in place of links to
    them.
    """
    folder = (DOCS / name).parent

    def named(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        path = target.relative_to(DOCS.parent)
        if path.name in link[1]:
            return f"`{path}`"
        return f"{link[1]} (`{path}`)"

    source[0] = with_pictures(LINK.sub(named, source[0]))
    if name in OVER_A_FOLDER:
        source[0] += CHILDREN


def setup(app: Any) -> None:
    """Makes the pages that come from the code, before any is read."""
    write_pages(DOCS)
    app.connect("source-read", prepare)
    app.add_lexer("csv", TextLexer)
