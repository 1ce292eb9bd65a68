"""YAML text to plain values that remember their places.

PyYAML composes the nodes (so that each has its line and column); what a scalar *means* is said
by :mod:`testbed.spec.scalars`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final, cast

import yaml

from testbed.spec.problems import Path, Place, Problem, SpecErrors, dotted
from testbed.spec.scalars import ScalarError, plain_key, plain_scalar

MAX_FILE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 200_000

_STR = "tag:yaml.org,2002:str"
_RESOLVER = yaml.resolver.Resolver()


@dataclass
class Document:
    """A file's content as plain values. ``places`` are the values', ``key_places`` their keys'.

    ``poisoned`` are the paths whose value could not be read: what is said about them has been
    said already. Keys are strings; duplicate keys keep the first value.
    """

    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    key_places: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    poisoned: set[Path] = field(default_factory=set)

    def at(self, path: Path) -> Any:
        """The value at a path."""
        value = self.data
        for part in path:
            value = value[part]
        return value

    def nearest(self, path: Path) -> Path:
        """The path itself, or the nearest one above it that is in the file."""
        while path not in self.places and path:
            path = path[:-1]
        return path

    def place(self, path: Path) -> Place:
        """The value's place, or the nearest one above it that is in the file."""
        return self.places[self.nearest(path)]

    def key_place(self, path: Path) -> Place:
        return self.key_places.get(path) or self.place(path)

    def is_poisoned(self, path: Path) -> bool:
        """Whether this value, or one that it is part of, could not be read."""
        return any(path[:length] in self.poisoned for length in range(len(path) + 1))

    def report(self, path: Path, message: str, *, at_key: bool = False) -> None:
        place = self.key_place(path) if at_key else self.place(path)
        self.problems.append(Problem(place, dotted(path), message))


def read_text(path: FilePath) -> str:
    """The file's text; :class:`SpecErrors` where there is none that could be an experiment."""
    source = Place(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise SpecErrors([Problem(source, "", "is a directory, not a file")]) from None
    except FileNotFoundError:
        raise SpecErrors([Problem(source, "", "there is no such file")]) from None
    except OSError as error:
        raise SpecErrors([Problem(source, "", f"cannot be read: {error.strerror}")]) from None
    if len(raw) > MAX_FILE_BYTES:
        limit = f"{MAX_FILE_BYTES >> 20} MiB"
        raise SpecErrors(
            [Problem(source, "", f"is larger than an experiment file may be ({limit})")]
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        place = _place_after(str(path), before)
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise SpecErrors([Problem(place, "", message)]) from None


def read_document(text: str, source: str) -> Document:
    """One YAML document as a :class:`Document`; :class:`SpecErrors` where it is not YAML at all."""
    root = _compose(text, source)
    reader = _Reader(source)
    reader.document.data = reader.value(root, ())
    return reader.document


def _place_after(source: str, before: str) -> Place:
    return Place(source, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _compose(text: str, source: str) -> yaml.Node:
    try:
        root = yaml.SafeLoader(text).get_single_node()
    except yaml.reader.ReaderError as error:
        place = _place_after(source, text[: error.position])
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"the character U+{code:04X} cannot stand in YAML"
        raise SpecErrors([Problem(place, "", message)]) from None
    except yaml.MarkedYAMLError as error:
        raise SpecErrors([_syntax_problem(error, source)]) from None
    except RecursionError:
        raise SpecErrors([Problem(Place(source, 1, 1), "", "is nested too deeply")]) from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value == "" and not root.style):
        raise SpecErrors([Problem(Place(source, 1, 1), "", "is empty")])
    return root


def _place_of(mark: yaml.Mark | None, source: str) -> Place:
    return Place(source, 1, 1) if mark is None else Place(source, mark.line + 1, mark.column + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, source: str) -> Problem:
    """What the YAML reader stumbled over, in words that name the mend where there is one."""
    place = _place_of(error.problem_mark or error.context_mark, source)
    said = error.problem or ""
    if said == "but found another document":
        message = "a second document begins here: one file holds one experiment, split it"
    elif "'\\t'" in said:
        message = "a tab cannot indent YAML: use spaces"
    elif said.startswith("mapping values are not allowed"):
        message = "a ':' that no key stands before: check the indentation, or quote the text"
    elif said.startswith("found undefined alias"):
        message = f"{said.removeprefix('found ')}: no anchor of that name stands before it"
    else:
        message = f"not YAML: {said}" + (f" ({error.context})" if error.context else "")
    return Problem(place, "", message)


class _Reader:
    """Walks composed nodes into a :class:`Document`."""

    def __init__(self, source: str) -> None:
        self.document = Document()
        self._source = source
        self._values = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        place = _place_of(node.start_mark, self._source)
        self._values += 1
        self.document.places[path] = place
        if len(path) > MAX_DEPTH:
            raise SpecErrors([Problem(place, "", f"is nested more than {MAX_DEPTH} deep")])
        if self._values > MAX_VALUES:
            message = f"holds more than {MAX_VALUES:,} values, aliases expanded"
            raise SpecErrors([Problem(place, "", message)])
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != "tag:yaml.org,2002:seq":
                return self._poison(path, _tag_message(node.tag))
            return [self.value(child, (*path, i)) for i, child in enumerate(node.value)]
        return self._scalar(cast(yaml.ScalarNode, node), path)

    def _poison(self, path: Path, message: str) -> None:
        self.document.poisoned.add(path)
        self.document.report(path, message)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Any:
        if node.tag != "tag:yaml.org,2002:map":
            return self._poison(path, _tag_message(node.tag))
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place_of(key_node.start_mark, self._source)
            try:
                key = _key(key_node)
            except ScalarError as error:
                self.document.problems.append(Problem(place, dotted(path), str(error)))
                continue
            here = (*path, key)
            if key in out:
                first = self.document.key_places[here]
                message = f"is a duplicate: it stands in line {first.line} too"
                self.document.problems.append(Problem(place, dotted(here), message))
                continue
            self.document.key_places[here] = place
            out[key] = None
            out[key] = self.value(value_node, here)
        return out

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        if node.tag != (_STR if node.style else _implied_tag(node.value)):
            return self._poison(path, _tag_message(node.tag))
        if node.style:
            return node.value
        try:
            return plain_scalar(node.value)
        except ScalarError as error:
            return self._poison(path, str(error))


def _implied_tag(text: str) -> str:
    """The tag a plain scalar has unless the file gives it another."""
    return str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]


def _tag_message(tag: str) -> str:
    name = tag.replace("tag:yaml.org,2002:", "!!")
    return f"the tag {name} means nothing here: remove it"


def _key(node: yaml.Node) -> str:
    """A mapping's key; raises :class:`ScalarError`."""
    if not isinstance(node, yaml.ScalarNode):
        raise ScalarError("a key must be a word, not a list or a mapping")
    if node.value == "":
        raise ScalarError("a key is empty")
    return str(node.value) if node.style else plain_key(node.value)
