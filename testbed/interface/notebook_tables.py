"""Small tables as a notebook shows them: HTML with every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def html_table(rows: Sequence[Sequence[str]], above: str, below: Sequence[str] = ()) -> str:
    """Headings and lines of texts, a sentence above them and sentences below."""
    head = "".join(f"<th>{escape(text)}</th>" for text in rows[0])
    lines = (
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows[1:]
    )
    sentences = "".join(f"<p>{escape(text)}</p>" for text in below)
    return (
        f"<div><p><strong>{escape(above)}</strong></p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{sentences}</div>"
    )
