"""Small tables as a notebook shows them: HTML with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def html_table(
    rows: Sequence[Sequence[str]], above: str, below: Sequence[str] = ()
) -> str:
    """Headings and lines of texts, a sentence above them and sentences below."""
    head = _tagged("th", rows[0])
    lines = ""
    for row in rows[1:]:
        lines += f"<tr>{_tagged('td', row)}</tr>"
    return (
        f"<div><p><strong>{escape(above)}</strong></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        f"{_tagged('p', below)}</div>"
    )


def _tagged(tag: str, texts: Sequence[str]) -> str:
    html = ""
    for text in texts:
        html += f"<{tag}>{escape(text)}</{tag}>"
    return html
