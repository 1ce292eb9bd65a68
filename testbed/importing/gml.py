"""Graphs in GML, as of the Internet Topology Zoo, as elements of GraphML."""

from __future__ import annotations

import html
import re
from pathlib import Path

from testbed.importing.imported import refusal
from testbed.importing.safe_documents import DEEPEST, MOST_VALUES, Element

# White space and comments match too: every character is of a token.
_TOKEN = re.compile(
    r'\s+|#[^\n]*|(?P<open>\[)|(?P<close>\])|"(?P<text>[^"]*)"'
    r"|(?P<word>[^\s\[\]\"#]+)"
)
# No text matches in two ways: the number of ways would double with each line.
_BEGINNING = re.compile(
    r'(?:\s|#[^\n]*\n|(?:Creator|Version)\s+(?:"[^"]*"|[^\s"]\S*)\s)*'
    r"graph\s*\["
)
_ENDS = ("source", "target")


def is_gml(text: str) -> bool:
    """True for the beginning of a file in GML."""
    return _BEGINNING.match(text.removeprefix("\ufeff")) is not None


def read_gml(content: bytes, path: Path) -> Element:
    """The root element of the GraphML. Raises BadInput with the line.

    A node's number is its id, whatever its label: labels may occur twice.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # In Latin-1 every byte is a character: no file is refused for its
        # encoding.
        text = content.decode("latin-1")
    return _GmlReader(path).read(text)


class _GmlReader:
    """The open lists, and the key whose value comes next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._root = Element("graphml", {}, line=1)
        self._open = [self._root]
        self._key = ""
        self._line = 1
        self._values = 0

    def read(self, text: str) -> Element:
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                raise self._refusal("a quotation mark has no second one")
            self._take(token)
            self._line += text.count("\n", place, token.end())
            place = token.end()
        if self._key or len(self._open) > 1:
            raise self._refusal("the file is cut off here")
        return self._root

    def _refusal(self, why: str) -> Exception:
        return refusal(self._path, f"no GML: {why}", self._line)

    def _take(self, token: re.Match[str]) -> None:
        if token["open"]:
            self._begin_list()
        elif token["close"]:
            self._end_list()
        elif token["text"] is not None:
            # GML writes characters beyond ASCII as HTML does.
            self._take_value(html.unescape(token["text"]))
        elif token["word"] and self._key:
            self._take_value(token["word"])
        elif token["word"]:
            self._key = token["word"]

    def _begin_list(self) -> None:
        key = self._taken_key()
        parent = self._open[-1]
        if key == "graph" and parent is self._root:
            element = Element("graph", {}, self._line)
        elif key in ("node", "edge") and parent.tag == "graph":
            element = Element(key, {}, self._line)
        else:
            # Mostly graphics.
            element = Element("data", {"key": key}, self._line, parts=["["])
        if len(self._open) >= DEEPEST:
            raise self._refusal(f"more than {DEEPEST} lists are open")
        parent.children.append(element)
        self._open.append(element)

    def _end_list(self) -> None:
        if self._key:
            raise self._refusal(
                "a list ends here after a key without a value"
            )
        if len(self._open) == 1:
            raise self._refusal("a list ends here that did not begin")
        self._open.pop()

    def _take_value(self, value: str) -> None:
        key = self._taken_key()
        parent = self._open[-1]
        if parent.tag == "node" and key == "id":
            parent.attributes["id"] = value
        elif parent.tag == "edge" and key in _ENDS:
            parent.attributes[key] = value
        elif parent.tag == "graph" and key == "directed":
            # 1 is GML's word for true.
            if value == "1":
                parent.attributes["edgedefault"] = "directed"
        else:
            data = Element("data", {"key": key}, self._line, parts=[value])
            parent.children.append(data)

    def _taken_key(self) -> str:
        """The key of a value or list that begins, which counts as a value."""
        key = self._key
        if not key:
            raise self._refusal("a value without its key")
        self._values += 1
        if self._values > MOST_VALUES:
            raise self._refusal(f"more than {MOST_VALUES:,} values")
        self._key = ""
        return key
