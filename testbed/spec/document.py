"""An experiment file's YAML as plain values with their places and problems.

PyYAML composes the nodes, so that each has its line and column. This module
resolves plain scalars, by rules that all YAML versions share: whole numbers,
decimal fractions, ``true`` and ``false``, and texts. A text that YAML 1.1 and
1.2 read differently is refused, with an unambiguous form of it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, Final, cast

import yaml

from testbed.errors import BadInput
from testbed.owned_files import from_home
from topologies.datacentre import dotted

MAX_FILE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 200_000
EXAMPLES: Final = FilePath(__file__).resolve().parents[2] / "examples"
"""The experiment files that ``testbed examples`` copies."""
_SHOWN: Final = 60
_MOST_COMPARED: Final = 1000

_STR = "tag:yaml.org,2002:str"
_RESOLVER = yaml.resolver.Resolver()

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """A line and column in a source, counted from 1; line 0 for a source without
    lines, such as a command's option.
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.line:
            return f"{self.source}:{self.line}:{self.column}"
        return self.source


@dataclass(frozen=True)
class Problem:
    """A mistake in a file. ``path`` is the dotted key: ``topology.fanout[2]``."""

    place: Place
    path: str
    message: str

    def __str__(self) -> str:
        where = (
            f"{self.place}: {self.path}" if self.path else str(self.place)
        )
        return f"{where}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.place.source,
            "line": self.place.line,
            "column": self.place.column,
            "path": self.path,
            "message": self.message,
        }


class SpecErrors(BadInput):
    """All problems of one file; its text is the list, one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            sorted(problems, key=lambda p: (p.place, p.path, p.message))
        )
        if not self.problems:
            raise ValueError("there is nothing wrong")
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(
        self,
    ) -> tuple[type[SpecErrors], tuple[tuple[Problem, ...]]]:
        # The constructor takes the problems, not the text.
        return SpecErrors, (self.problems,)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is near."""
    close = near(name, known)
    return "" if close is None else f" (did you mean {close!r}?)"


def near(name: str, known: Sequence[str]) -> str | None:
    """The known name whose spelling is closest to ``name``, or else the only one
    that contains it or is contained in it; None without one.
    """
    # A file may hold as many wrong names as there are known ones.
    if len(known) > _MOST_COMPARED:
        return None
    # Case, dashes and underscores are what people mix up.
    folded = {other.lower().replace("_", "-"): other for other in known}
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key in folded:
        return folded[key]
    close = get_close_matches(key, list(folded), n=1, cutoff=0.6)
    # Without a near spelling: the only known name that contains this one, or
    # is contained in it.
    if not close:
        for other in folded:
            # Two letters are contained in nearly everything.
            is_part = key in other or other in key
            if is_part and min(len(other), len(key)) > 2:
                close.append(other)
    if len(close) == 1:
        return folded[close[0]]
    return None


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """``unknown policy 'vv' (did you mean 'vc'?); known: scripted, vc``."""
    return f"unknown {what} {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"


@dataclass
class Document:
    """A file's content as plain values.

    ``places`` and ``key_places`` are the places of values and of their keys.
    ``unreadable`` are the paths whose value could not be read; the problem is
    reported already. Keys are strings; duplicate keys keep the first value.
    ``files`` are the files that it names, as far as they were looked for.
    ``supplied`` are files by name that are used without a search.
    """

    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    key_places: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[Path] = field(default_factory=set)
    files: dict[str, FilePath] = field(default_factory=dict)
    supplied: Mapping[str, FilePath] = field(default_factory=dict)

    @property
    def folder(self) -> FilePath:
        """The folder of the file; the files that it names are looked for there
        first.
        """
        return FilePath(self.places[()].source).parent


@dataclass(frozen=True)
class Location:
    """A path in a document, where a check looks and reports."""

    document: Document
    path: Path = ()

    def __truediv__(self, key: str | int) -> Location:
        return Location(self.document, (*self.path, key))

    @property
    def value(self) -> Any:
        """The plain value at this place."""
        value = self.document.data
        for part in self.path:
            value = value[part]
        return value

    @property
    def nearest(self) -> Location:
        """This location, or the nearest one above it that is in the file."""
        path = self.path
        while path not in self.document.places and path:
            path = path[:-1]
        return Location(self.document, path)

    @property
    def place(self) -> Place:
        """The place of the value, or of the nearest one above it that is in the
        file.
        """
        return self.document.places[self.nearest.path]

    @property
    def is_readable(self) -> bool:
        """True if this value and all values around it could be read."""
        for length in range(len(self.path) + 1):
            if self.path[:length] in self.document.unreadable:
                return False
        return True

    def is_sound(self) -> bool:
        """True while no problem with this value or a part of it is reported."""
        name = dotted(self.path)
        # A part follows a dot or a bracket: `jobs` is no part of `job`.
        below = (f"{name}.", f"{name}[")
        for problem in self.document.problems:
            if problem.path == name or problem.path.startswith(below):
                return False
        return True

    def report(
        self, message: str, *keys: str | int, at_key: bool = False
    ) -> None:
        """Adds a problem with this value, or with the one at ``keys`` below it.

        ``at_key`` shows the place of the value's key, if the file has the key.
        """
        location = Location(self.document, (*self.path, *keys))
        place = None
        if at_key:
            place = self.document.key_places.get(location.path)
        location.report_at(place or location.place, message)

    def report_at(self, place: Place, message: str) -> None:
        """Adds a problem with this value at another place, such as a file's line."""
        problem = Problem(place, dotted(self.path), message)
        self.document.problems.append(problem)


def _refused(place: Place, message: str) -> SpecErrors:
    """The error of a file that cannot be read any further."""
    return SpecErrors([Problem(place, "", message)])


def _meant(path: FilePath) -> str:
    """A hint for a path without a file: the closest name of a file in the same
    folder, or of an example.

    An exact name without its ending wins over a close one.
    """
    name = path.name.removesuffix(".yaml")
    beside = _experiment_names(path.parent)
    examples = _experiment_names(EXAMPLES)
    exact = [known for known in (beside, examples) if name in known]
    for known in exact or (beside, examples):
        meant = near(name, known)
        if meant is not None and known is beside:
            return f" (did you mean {path.with_name(f'{meant}.yaml')}?)"
        if meant is not None:
            return (
                f"; {meant} is an example: after `testbed examples`,"
                f" it is examples/{meant}.yaml"
            )
    return ""


def _experiment_names(folder: FilePath) -> list[str]:
    """Names of a folder's experiment files, without their ending."""
    if not folder.is_dir():
        return []
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read_text(path: FilePath) -> str:
    """The file's text. Raises :class:`SpecErrors` for a file that is missing,
    unreadable, too large or not UTF-8.
    """
    raw = _read_bytes(path)
    if len(raw) > MAX_FILE_BYTES:
        raise _refused(
            Place(str(path)),
            f"is larger than an experiment file may be ({MAX_FILE_BYTES >> 20} MiB)",
        )
    try:
        # Some editors begin a file with a byte order mark.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Without the byte order mark, which does not count.
        content = error.object
        before = content[: error.start].decode()
        place = _place_after(str(path), before)
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise _refused(place, message) from None


def _read_bytes(path: FilePath) -> bytes:
    """The file's first bytes, one more than the limit."""
    source = Place(str(path))
    try:
        with path.open("rb") as file:
            # The byte above the limit shows that the file is too long.
            return file.read(MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise _refused(source, "is a directory, not a file") from None
    except FileNotFoundError:
        raise _refused(
            source, f"there is no such file{_meant(path)}"
        ) from None
    except OSError as error:
        raise _refused(
            source, f"cannot be read: {error.strerror}"
        ) from None


def search_path(beside: FilePath) -> tuple[FilePath, ...]:
    """Folders in order: beside the experiment file, along ``TESTBED_DATA``, the
    cache.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or from_home("~/.cache")
    folders = [beside]
    for part in os.environ.get("TESTBED_DATA", "").split(os.pathsep):
        if part:
            folders.append(FilePath(from_home(part)))
    return *folders, FilePath(cache) / "testbed"


def file_at(
    location: Location,
    name: str,
    origin: str = "",
    elsewhere: Sequence[FilePath] = (),
) -> FilePath | None:
    """The file that a key names; None, and reported, where there is none.

    ``origin`` is added to the message, ``elsewhere`` are paths that are tried
    last.
    """
    # A file that came with the experiment wins over one beside it.
    path = location.document.supplied.get(name) or find_file(
        name, location.document.folder, elsewhere
    )
    if path is not None:
        location.document.files[name] = path
    else:
        shown = repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
        beside = location.document.folder / from_home(name)
        if is_there(beside, folders=True):
            location.report(f"{shown} is a folder or a device, not a file")
            return None
        missing = f"there is no file {shown} beside this one, along TESTBED_DATA or in the cache"
        location.report(f"{missing}{origin}")
    return path


def is_beside(location: Location, name: str) -> bool:
    """True where a file or folder of that name is beside the experiment file,
    or is supplied.
    """
    path = (
        location.document.supplied.get(name)
        or location.document.folder / name
    )
    if is_there(path):
        location.document.files[name] = path
    return is_there(path, folders=True)


def find_file(
    name: str, beside: FilePath, elsewhere: Sequence[FilePath] = ()
) -> FilePath | None:
    """The first file of that name; an absolute name, or one under ``~``,
    stands for itself.
    """
    name = from_home(name)
    candidates = [folder / name for folder in search_path(beside)]
    for path in (*candidates, *elsewhere):
        if is_there(path):
            return path
    return None


def is_there(path: FilePath, *, folders: bool = False) -> bool:
    """True for a file, or with ``folders`` for a folder too.

    Also True for one without permission to look at it: reading it reports the
    reason. False for a name that is too long for a file.
    """
    try:
        if folders:
            return path.exists()
        return path.is_file()
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def read_document(text: str, source: str) -> Document:
    """One YAML document as a :class:`Document`; :class:`SpecErrors` where it is
    not YAML at all.
    """
    root = _compose(text, source)
    reader = _Reader(source)
    reader.document.data = reader.value(root, ())
    return reader.document


def _place_after(source: str, before: str) -> Place:
    return Place(
        source,
        before.count("\n") + 1,
        len(before) - before.rfind("\n"),
    )


def _compose(text: str, source: str) -> yaml.Node:
    try:
        # Nodes have places, and their tags construct nothing.
        root = _root(yaml.SafeLoader(text), source)
    except yaml.reader.ReaderError as error:
        place = _place_after(source, text[: error.position])
        code = error.character
        # PyYAML gives the character as a number or as a text.
        if not isinstance(code, int):
            code = ord(code)
        message = f"the character U+{code:04X} cannot stand in YAML"
        raise _refused(place, message) from None
    except yaml.MarkedYAMLError as error:
        raise SpecErrors([_syntax_problem(error, source)]) from None
    except RecursionError:
        raise _refused(
            Place(source, 1, 1), "is nested too deeply"
        ) from None
    # A file of comments alone has no root, or an empty one.
    if root is None or (
        isinstance(root, yaml.ScalarNode)
        and root.value == ""
        and not root.style
    ):
        raise _refused(Place(source, 1, 1), "is empty")
    return root


def _root(loader: yaml.SafeLoader, source: str) -> yaml.Node | None:
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError):
        # PyYAML converts the numbers of escapes and versions unchecked.
        place = _place_of(loader.get_mark(), source)
        message = (
            "not YAML: the number of an escape or version is too large"
        )
        raise _refused(place, message) from None


def _place_of(mark: yaml.Mark | None, source: str) -> Place:
    if mark is None:
        return Place(source, 1, 1)
    return Place(source, mark.line + 1, mark.column + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, source: str) -> Problem:
    """The YAML parser's objection, with the correction where that is known."""
    place = _place_of(error.problem_mark or error.context_mark, source)
    objection = error.problem or ""
    # By the parser's own words, since its errors have no kinds.
    if objection == "but found another document":
        message = "a second document begins here: one file holds one experiment, split it"
    elif "'\\t'" in objection:
        message = "a tab cannot indent or separate YAML: use spaces"
    elif objection.startswith("mapping values are not allowed"):
        message = "a ':' that no key stands before: check the indentation, or quote the text"
    elif objection.startswith("found undefined alias"):
        message = f"{objection.removeprefix('found ')}: no anchor of that name stands before it"
    else:
        message = f"not YAML: {objection}"
        if objection.startswith("expected <block end>"):
            message = "its indentation fits no key above: align it with one"
        if error.context:
            message += f" ({error.context}{_begun(error.context_mark)})"
    return Problem(place, "", message)


def _begun(mark: yaml.Mark | None) -> str:
    """The line in which the quote, list or mapping begins, in words."""
    if mark is None:
        return ""
    return f", begun in line {mark.line + 1}"


class _Reader:
    """Walks composed nodes into a :class:`Document`."""

    def __init__(self, source: str) -> None:
        self.document = Document()
        self._source = source
        self._values = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        place = _place_of(node.start_mark, self._source)
        self.document.places[path] = place
        self._check_size(path, place)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != "tag:yaml.org,2002:seq":
                return self._refuse(path, _tag_message(node.tag))
            values = []
            for index, child in enumerate(node.value):
                values.append(self.value(child, (*path, index)))
            return values
        return self._scalar(cast(yaml.ScalarNode, node), path)

    def _check_size(self, path: Path, place: Place) -> None:
        """Counts a value. Raises SpecErrors for too many or too deep ones."""
        self._values += 1
        if len(path) > MAX_DEPTH:
            raise _refused(place, f"is nested more than {MAX_DEPTH} deep")
        # Ten lines of aliases of aliases can expand to a billion values.
        if self._values > MAX_VALUES:
            message = (
                f"holds more than {MAX_VALUES:,} values, aliases expanded"
            )
            raise _refused(place, message)

    def _refuse(self, path: Path, message: str) -> None:
        self.document.unreadable.add(path)
        Location(self.document, path).report(message)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Any:
        if node.tag != "tag:yaml.org,2002:map":
            return self._refuse(path, _tag_message(node.tag))
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._new_key(key_node, path, out)
            if key is not None:
                out[key] = self.value(value_node, (*path, key))
        return out

    def _new_key(
        self, node: yaml.Node, path: Path, known: Mapping[str, Any]
    ) -> str | None:
        """A mapping's next key; None, and reported, where it cannot be one."""
        place = _place_of(node.start_mark, self._source)
        mapping = Location(self.document, path)
        try:
            key = _key(node)
        except ScalarError as error:
            mapping.report_at(place, str(error))
            return None
        location = mapping / key
        # PyYAML would keep the last of both, without a word.
        if key in known:
            first = self.document.key_places[location.path]
            location.report_at(
                place,
                f"is a duplicate: it stands in line {first.line} too",
            )
            return None
        self.document.key_places[location.path] = place
        return key

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        # A tag that the text does not imply was written out.
        if node.tag != (_STR if node.style else _implied_tag(node.value)):
            return self._refuse(path, _tag_message(node.tag))
        try:
            if node.style:
                return _quoted(node.value)
            return plain_scalar(node.value)
        except ScalarError as error:
            return self._refuse(path, str(error))


def _implied_tag(text: str) -> str:
    """The tag of a plain scalar without an explicit tag."""
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
    # A quoted word is a text in all versions.
    if node.style:
        return _quoted(node.value)
    return plain_key(node.value)


def _quoted(text: str) -> str:
    """A quoted scalar; raises :class:`ScalarError` for what UTF-8 has no bytes
    for.
    """
    half = re.search("[\ud800-\udfff]", text)
    if half is not None:
        raise ScalarError(
            f"holds half a character, \\u{ord(half[0]):04X}: write it whole"
        )
    return text


# ------------------------------------------------------------------ plain scalars

# Counts and rates end up in arrays of 64 bits (decision 03).
MAX_WHOLE: Final = 2**63 - 1
_MAX_DIGITS: Final = 30
_BOOL: Final = {"true": True, "false": False}
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_INT = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")


class ScalarError(ValueError):
    """An ambiguous text; the message names an unambiguous form of it."""


def plain_scalar(text: str) -> bool | int | float | str:
    """The value of an unquoted scalar; raises :class:`ScalarError`."""
    if text in _NULL:
        raise ScalarError("has no value: write one, or remove the key")
    # int() would refuse thousands of digits with a message about Python's
    # settings.
    if len(text) > _MAX_DIGITS and re.fullmatch(r"[-+0-9._:]+", text):
        raise ScalarError(_too_long(text))
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    surprise = _surprise(text)
    if surprise is not None:
        raise ScalarError(surprise)
    return text


def plain_key(text: str) -> str:
    """An unquoted key: the text itself, unless YAML versions dispute it."""
    if text == "<<":
        raise ScalarError(
            "'<<' (YAML's merge) is not supported: write the keys out"
        )
    if text in _BOOL or text in _NULL:
        raise ScalarError(
            f"the key {text} is not a word: write '{text}' if the word is meant"
        )
    surprise = _surprise(text)
    if surprise is not None:
        raise ScalarError(f"the key {text}: {surprise}")
    return text


def _too_long(text: str) -> str:
    return f"is too long for a number: {len(text)} characters"


def _surprise(text: str) -> str | None:
    """A clear form for a text that YAML versions read differently."""
    for pattern, hint, meant in _SURPRISES:
        if re.fullmatch(pattern, text):
            if len(text) > _MAX_DIGITS:
                return _too_long(text)
            return hint.format(text, meant(text))
    return None


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_WHOLE:
        raise ScalarError(f"{text} is larger than any whole number here")
    return number


def _seconds(text: str) -> str:
    # Decimal, so that a fraction is shown as it was written.
    total = Decimal(0)
    for part in text.lstrip("+-").split(":"):
        total = total * 60 + Decimal(part.rstrip(".") or "0")
    if text.startswith("-"):
        total = -total
    return f"{total}: write a time with its unit, as {total} s, or '{text}' in quotes"


def _exponent(text: str) -> str:
    _, _, exponent = text.lower().partition("e")
    # Decimal arithmetic is limited to exponents of 18 digits.
    without = "the number without an exponent"
    if len(exponent) > 9:
        return without
    number = Decimal(text)
    if abs(number.adjusted()) > 15:
        return without
    return f"{number:f}, or '{text}' in quotes"


def _octal(text: str) -> str:
    digits = text.replace("_", "").lstrip("+-")
    sign = "-" if text.startswith("-") else ""
    also = ""
    if not re.search("[89]", digits):
        also = f" (YAML 1.1 reads it as octal {sign}{int(digits, 8)})"
    return f"{also}: write {sign}{digits.lstrip('0') or '0'}"


_EITHER = "{0} is read as a number or as a text: write {1}"
_SURPRISES: Final[tuple[tuple[str, str, Callable[[str], object]], ...]] = (
    # YAML 1.1's truth values; in 1.2 these are words, but for true and
    # false.
    (
        r"(?i:yes|on|true|no|off|false)",
        "YAML 1.1 reads {0} as {1}: write {1}, or '{0}' if the word is meant",
        lambda text: (
            "true" if text.lower() in ("yes", "on", "true") else "false"
        ),
    ),
    # Numbers in both versions, but not finite.
    (
        r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "{0} is not a finite number: write one",
        str,
    ),
    # YAML 1.1 reads digits with colons to the base of 60.
    (
        r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?",
        "YAML 1.1 reads {0} as the number {1}",
        _seconds,
    ),
    # YAML 1.2 reads 1e3 as a number; PyYAML, after 1.1, wants a point and a
    # sign, and reads a text.
    (r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", _EITHER, _exponent),
    # 1.1 knows 0x and 0b, 1.2 knows 0x and 0o.
    (
        r"(?i:[-+]?0(x[0-9a-f]+|o[0-7]+|b[01]+))",
        f"{_EITHER}, or '{{0}}' in quotes",
        lambda text: int(text, 0),
    ),
    # A leading 0 makes it octal in 1.1 alone.
    (
        r"[-+]?0[0-9_]+",
        "{0} begins with a 0{1}, or '{0}' in quotes",
        _octal,
    ),
    (
        # An underscore may stand before the point, after it, and in both.
        r"[-+]?(?=[0-9.]*_)([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?",
        "{0} has an underscore: write {1}, or '{0}' in quotes",
        lambda text: text.replace("_", "").rstrip("."),
    ),
    (
        r"\+[0-9]+(\.[0-9]*)?|[-+]?\.[0-9]+|-?[0-9]+\.|-?0[0-9]+\.[0-9]+",
        "{0} is not how a number is written here: write {1}",
        lambda text: f"{Decimal(text):f}",
    ),
)
