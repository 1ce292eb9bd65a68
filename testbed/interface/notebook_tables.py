"""Small tables as a notebook shows them: HTML with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def html_table(
    rows: Sequence[Sequence[str]], above: str, below: Sequence[str] = ()
) -> str:
    """An HTML table, with a sentence above it and sentences below.

    ``rows``: the headings, then the lines.
    """
    head = _tagged("th", rows[0])
    body = "".join(f"<tr>{_tagged('td', row)}</tr>" for row in rows[1:])
    return (
        f"<div><p><strong>{escape(above)}</strong></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{_tagged('p', below)}</div>"
    )


def _tagged(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
