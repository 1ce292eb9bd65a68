"""XML and YAML of unknown origin, read within limits.

No entity is expanded, nothing is fetched, no Python object is constructed, and
a small file cannot expand to a large value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import yaml

from testbed.importing.imported import refusal

DEEPEST = 100
MOST_VALUES = 1_000_000
YAML_BYTES = 1 << 20


@dataclass
class Element:
    """An XML element; names are without their namespaces."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The element's text before, between and after its children."""
        return "".join(self.parts)

    def get(self, name: str, default: str = "") -> str:
        """The value of an attribute."""
        return self.attributes.get(name, default)

    def __iter__(self) -> Iterator[Element]:
        """The element and all its descendants, in the file's order."""
        yield self
        for child in self.children:
            yield from child

    def with_tag(self, tag: str) -> Iterator[Element]:
        """Elements of a tag at any depth, this one included."""
        for element in self:
            if element.tag == tag:
                yield element

    def below(self, *tags: str) -> list[Element]:
        """The children of these tags."""
        return [child for child in self.children if child.tag in tags]


class _Refused(Exception):
    """Raised by a handler to stop reading an XML file, with the reason."""


def read_xml(content: bytes, path: Path) -> Element:
    """The root element. Raises BadInput, with the line where it is known.

    A document type without declarations is skipped, since SimGrid's platforms
    have one. Declarations and uses of entities are refused.
    """
    return _XmlReader(path).read(content)


class _XmlReader:
    """Handlers of expat's events, and the elements that are open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[Element] = []
        self._root: Element | None = None
        self._elements = 0
        self._parser = expat.ParserCreate(namespace_separator=" ")
        # Otherwise a text arrives in pieces of the size of expat's buffer.
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._data
        # Entities expand exponentially (a billion laughs), and may name
        # files: their definitions and uses are refused.
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.EntityDeclHandler = self._entity
        self._parser.SkippedEntityHandler = self._entity
        self._parser.ExternalEntityRefHandler = self._entity

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)  # noqa: FBT003 expat's own
        except _Refused as error:
            raise self._refusal(str(error)) from None
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise refusal(
                self._path, f"no XML: {reason}", error.lineno
            ) from None
        except (LookupError, ValueError) as error:
            # Raised for an encoding that expat or Python does not know.
            raise self._refusal(f"no XML: {error}") from None
        if self._root is None:
            raise refusal(self._path, "no XML: there is no element")
        return self._root

    def _refusal(self, message: str) -> Exception:
        return refusal(self._path, message, self._parser.CurrentLineNumber)

    def _doctype(self, _name: str, *rest: Any) -> None:
        has_internal_subset = rest[-1]
        if has_internal_subset:
            raise _Refused("a document type with declarations is not read")

    def _entity(self, *_: Any) -> int:
        raise _Refused("entities are not read: they may expand without end")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MOST_VALUES or len(self._open) >= DEEPEST:
            raise _Refused(
                f"more than {MOST_VALUES:,} elements, or {DEEPEST} inside"
                " each other"
            )
        local = {}
        for name, value in attributes.items():
            # expat writes "NAMESPACE NAME": only the local name is kept.
            local[name.rpartition(" ")[2]] = value
        element = Element(
            tag.rpartition(" ")[2], local, self._parser.CurrentLineNumber
        )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _data(self, text: str) -> None:
        # `text` joins the parts once: joining each would copy the whole text.
        self._open[-1].parts.append(text)


# ------------------------------------------------------------------ YAML


def read_yaml(content: bytes, path: Path) -> Any:
    """The content of a YAML file as mappings, lists and texts.

    Numbers stay texts, as they are written. Raises BadInput, with the line
    where it is known.
    """
    if len(content) > YAML_BYTES:
        raise refusal(path, f"is larger than {YAML_BYTES >> 20} MiB")
    try:
        # Nodes, not objects: tags construct nothing, and "yes" stays a text.
        node = yaml.compose(content, Loader=yaml.SafeLoader)
        return _YamlReader().value(node, depth=0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = None if mark is None else mark.line + 1
        why = error.problem or error.context or "it cannot be read"
        raise refusal(path, f"no YAML: {why}", line) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # OverflowError is PyYAML's for an escaped character such as "\UFFFFFFFF".
        first = str(error).partition("\n")[0]
        raise refusal(path, f"no YAML: {first}") from None
    except RecursionError:
        raise refusal(path, "is nested too deeply") from None


class _YamlReader:
    """Values of YAML nodes.

    An alias is read again and counts like a copy. The limits therefore hold
    for the expanded value, and an endless one is refused.
    """

    def __init__(self) -> None:
        self._values = 0

    def value(self, node: yaml.Node | None, depth: int) -> Any:
        """A node's value. Raises ValueError."""
        self._count(1)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, depth)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth)
        return "" if node is None else str(node.value)

    def _sequence(self, node: yaml.SequenceNode, depth: int) -> list[Any]:
        return [self.value(item, depth + 1) for item in node.value]

    def _mapping(
        self, node: yaml.MappingNode, depth: int
    ) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, item in node.value:
            value = self.value(item, depth + 1)
            if not isinstance(key, yaml.ScalarNode):
                why = "a key is no text: render a template first"
                raise ValueError(why)  # noqa: TRY004 - the file's, not a type
            if key.value == "<<":
                # Earlier merges win over later ones, as YAML's merge key
                # says.
                for name, part in self._merged(value).items():
                    merged.setdefault(name, part)
            else:
                mapping[str(key.value)] = value
        for name, value in merged.items():
            # Keys of the mapping itself win over merged ones.
            mapping.setdefault(name, value)
        return mapping

    def _merged(self, value: Any) -> dict[str, Any]:
        """Values of a merge key: a mapping, or several with the first winning."""
        merged: dict[str, Any] = {}
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                # Merging copies: each copy counts, or a small file could
                # make millions.
                self._count(len(part))
                for name, item in part.items():
                    merged.setdefault(name, item)
        return merged

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
