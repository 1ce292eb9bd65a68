"""Plug-ins: objects that users' Python files and installed packages provide.

A file is executed as a module; an installed package names its objects by entry
points. Either is loaded when an experiment uses it, and exceptions of its code
become a PluginError with a message of one sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, spec_from_file_location
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import Any, Final, Literal, TypeAlias

from testbed.errors import BadInput
from testbed.file_digests import file_digest

Group: TypeAlias = Literal[
    "policies", "embedders", "topologies", "workloads", "demands"
]
"""A kind of plug-in. Its entry points are in the group ``hosenet.GROUP``."""

FindFile: TypeAlias = Callable[[str], Path | None]
"""Returns a file's path by its name; None where there is no such file."""

_PREFIX: Final = "testbed_plugin_"
# Longer values are not written out in messages.
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True)
class SourceFile:
    """A Python file that was executed; ``name`` is that of its copy in a run
    folder.
    """

    name: str
    path: Path
    text: bytes = field(repr=False)

    def to_json(self) -> dict[str, str]:
        """The file's part of ``provenance.json``."""
        return {
            "path": str(self.path),
            "sha256": sha256(self.text).hexdigest(),
        }


@dataclass(frozen=True)
class Source:
    """Origin of a plug-in. ``written`` is its name in experiment files and
    messages.

    A plug-in from files has ``files``: its own, then the modules beside it that
    it imports. One from an installed package has ``distribution`` and
    ``version``. ``module`` is the module that was imported by name, if any.
    """

    written: str
    files: tuple[SourceFile, ...] = ()
    distribution: str | None = None
    version: str | None = None
    module: str | None = None

    def __str__(self) -> str:
        return self.written

    def to_json(self) -> dict[str, Any]:
        """The origin's part of ``provenance.json``."""
        if not self.files:
            return {
                "source": self.written,
                "distribution": self.distribution,
                "version": self.version,
            }
        main, *beside = [file.to_json() for file in self.files]
        record: dict[str, Any] = {"source": self.written, **main}
        if beside:
            record["beside"] = beside
        return record


@dataclass(frozen=True)
class Loaded:
    """The object of a plug-in, and its origin."""

    value: Any
    source: Source


@dataclass(frozen=True)
class PluginUse:
    """A plug-in that an experiment uses, by its name in the experiment file or
    run folder.
    """

    group: Group
    name: str
    source: Source

    def to_json(self) -> dict[str, Any]:
        """The entry of ``provenance.json``."""
        return {
            "group": self.group,
            "name": self.name,
            **self.source.to_json(),
        }


class PluginError(BadInput):
    """A plug-in that cannot be loaded, or an object that is not a plug-in.

    ``reason`` is the message without file, line and column. ``line`` and
    ``column`` count from 1; line 0: no line of a file is at fault.
    """

    def __init__(
        self,
        reason: str,
        file: Path | None = None,
        line: int = 0,
        column: int = 0,
    ) -> None:
        place = ""
        if file and line:
            place = f"{file}:{line}:{column}: "
        elif file:
            place = f"{file}: "
        super().__init__(f"{place}{reason}")
        self.reason = reason
        self.file = file
        self.line = line
        self.column = column


def plugin_error(error: BaseException, file: Path) -> PluginError:
    """An exception of a plug-in as a PluginError, at the innermost line of
    ``file`` in its traceback.

    Line 0: the file is not in the traceback.
    """
    text = " ".join(str(error).split())
    message = f"raises {type(error).__name__}: {text}".removesuffix(": ")
    line = 0
    column = 0
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line = error.lineno or 0
        column = error.offset or 0
        return PluginError(message, file, line, column)
    for at in extract_tb(error.__traceback__):
        if at.filename == str(file):
            line = at.lineno or 0
            column = (at.colno or 0) + 1
    return PluginError(message, file, line, column)


def raised_anywhere(error: BaseException) -> str:
    """The message of an exception, with the file and line that raised it:
    ``raises TypeError: … (mine.py:12)``.
    """
    if isinstance(error, SyntaxError) and error.filename:
        # Python's own message names file and line.
        return plugin_error(error, Path(error.filename)).reason
    # Without the testbed's call of the plug-in, and without the import system.
    frames = [at.filename for at in extract_tb(error.__traceback__)[1:]]
    files = [name for name in frames if "importlib" not in name]
    if not files:
        return plugin_error(error, Path()).reason
    problem = plugin_error(error, Path(files[-1]))
    return f"{problem.reason} ({problem.file}:{problem.line})"


def shown_value(value: object) -> str:
    """A plug-in's value for a message; its type if it is long or shows a memory
    address.
    """
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS and " at 0x" not in text:
        return text
    return f"a {type(value).__name__}"


# -- files ---------------------------------------------------------------------


def from_file(
    path: Path, name: str, written: str, beside: FindFile | None = None
) -> Loaded:
    """Executes a Python file and returns its object ``name``.

    The file is executed once, and again if it or a module beside it that it
    imports has changed. ``beside`` finds the files of such modules by their
    names relative to the file's folder; None: they are looked for in that
    folder. Prints go to standard error. Raises PluginError, with the line of
    the file that raised, and OSError where a file cannot be read.
    """
    text = path.read_bytes()
    place = path.resolve()
    module_name = f"{_PREFIX}{sha256(bytes(place) + text).hexdigest()[:24]}"
    module = sys.modules.get(module_name)
    finder = _ModulesBeside(beside or _finder_in(path.parent))
    if module is None or not finder.unchanged(vars(module)["__beside__"]):
        module = _execute(path, text, module_name, finder)
    kept = Path(kept_name(written.rpartition(":")[0]))
    files = [SourceFile(str(kept), place, text)]
    for relative, other in vars(module)["__beside__"].items():
        files.append(SourceFile(str(kept.parent / relative), *other))
    source = Source(written, tuple(files))
    return Loaded(_object_named(module, name, path), source)


def kept_name(written: str) -> str:
    """The name of a file's copy, relative to ``plugins/`` of a run folder."""
    return "/".join(
        part for part in Path(written).parts if part not in ("/", "..")
    )


def _finder_in(folder: Path) -> FindFile:
    def find(name: str) -> Path | None:
        path = folder / name
        return path if path.is_file() else None

    return find


class _ModulesBeside:
    """An importer of the modules beside a plug-in's file.

    ``files`` has path and text of every module imported, by the file's name;
    ``packages`` are their top-level names.
    """

    def __init__(self, find: FindFile) -> None:
        self.find = find
        self.files: dict[str, tuple[Path, bytes]] = {}
        self.packages: set[str] = set()

    def unchanged(self, files: Mapping[str, tuple[Path, bytes]]) -> bool:
        """True if all these files are found at the same path, with the same
        text.
        """
        # All are looked for even after a difference, as ``find`` may record
        # which files are used.
        now = {}
        for name in files:
            path = self.find(name)
            if path is not None:
                now[name] = (path.resolve(), path.read_bytes())
        return files == now

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """The module's specification; None where it is not beside the file.

        ``path`` is set for a submodule: only those of packages that this
        importer has found are beside the file.
        """
        del target
        top, _, _ = name.partition(".")
        if path is not None and top not in self.packages:
            return None
        stem = name.replace(".", "/")
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            location = self.find(file)
            if location is not None:
                self.packages.add(top)
                return self._spec(name, file, location)
        return None

    def _spec(self, name: str, file: str, path: Path) -> ModuleSpec | None:
        """Reads a module's file and keeps its text; the module's specification."""
        text = path.read_bytes()
        self.files[file] = path.resolve(), text
        folders = None
        if file.endswith("/__init__.py"):
            folders = [str(path.parent)]
        loader = _LoaderOfText(name, str(path))
        loader.text = text
        return spec_from_file_location(
            name, path, loader=loader, submodule_search_locations=folders
        )


class _LoaderOfText(SourceFileLoader):
    """A loader that compiles a text read before.

    It ignores the bytecode beside the file, which may be of another version.
    """

    text: bytes

    def get_code(self, fullname: str) -> CodeType:
        """The text, compiled."""
        return self.source_to_code(self.text, self.get_filename(fullname))


def _execute(
    path: Path, text: bytes, name: str, finder: _ModulesBeside
) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    vars(module)["__beside__"] = finder.files
    # dataclasses and pickle look the module up there.
    sys.modules[name] = module
    try:
        with _importing(finder), redirect_stdout(sys.stderr):
            exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 - a user's file
    except BaseException as error:
        # An interrupted one too: the next call would take it for executed.
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            raise plugin_error(error, path) from error
        raise
    return module


@contextmanager
def _importing(finder: _ModulesBeside) -> Iterator[None]:
    """In the block, modules beside a file can be imported; no bytecode is
    written.

    Afterwards they are removed from ``sys.modules``, as modules of another
    folder may have the same names.
    """
    former = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.dont_write_bytecode = former
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.partition(".")[0] in finder.packages:
                del sys.modules[name]


# -- modules -------------------------------------------------------------------


def from_module(name: str, attribute: str, written: str) -> Loaded:
    """Imports a module and returns its object ``attribute``. Raises
    PluginError.
    """
    try:
        with redirect_stdout(sys.stderr):
            module = import_module(name)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"cannot be imported: it {raised_anywhere(error)}"
        ) from error
    path = Path(getattr(module, "__file__", None) or "")
    files: tuple[SourceFile, ...] = ()
    if path.is_file():
        files = (SourceFile(f"{name}.py", path, path.read_bytes()),)
    # Raises if the sources are no longer those that Python imported.
    imported_digest(name)
    source = Source(written, files, module=name)
    return Loaded(_object_named(module, attribute, path), source)


def imported_digest(module: str) -> str:
    """SHA-256 of the Python sources of the package that a module belongs to.

    Once the package is imported, the first call keeps the digest, and later
    ones raise PluginError if it has changed.
    """
    top = module.partition(".")[0]
    digest = sha256()
    for name, path in _source_files(top):
        # A file's name may be no text.
        digest.update(os.fsencode(f"{name}\0{file_digest(path)}\n"))
    now = digest.hexdigest()
    if top in sys.modules:
        first = vars(sys.modules[top]).setdefault("__sources__", now)
        if first != now:
            raise PluginError(
                f"{top} has changed since it was imported: start Python anew"
            )
    return now


def module_files(module: str) -> dict[Path, bytes]:
    """Path and text of a module's Python file; empty where it has none."""
    spec = _spec_of(module)
    if spec is None:
        return {}
    path = Path(spec.origin or "")
    if not path.is_file():
        return {}
    return {path: path.read_bytes()}


def _spec_of(module: str) -> ModuleSpec | None:
    with suppress(ImportError, ValueError):  # __main__ has none
        return find_spec(module)
    return None


def _source_files(top: str) -> Iterator[tuple[str, Path]]:
    """Yields the Python files of a package or module: relative name and path."""
    spec = _spec_of(top)
    if spec is None:
        return
    path = Path(spec.origin or "")
    if path.is_file():
        yield path.name, path
    for folder in map(Path, spec.submodule_search_locations or ()):
        for path in sorted(folder.rglob("*.py")):
            if path.is_file():
                yield str(path.relative_to(folder)), path


def _object_named(module: ModuleType, name: str, file: Path) -> Any:
    """A module's object by its name, which may have dots. Raises PluginError."""
    # A plug-in's __getattr__ may raise anything.
    with suppress(Exception):
        return attrgetter(name)(module)
    known = [
        key
        for key, part in vars(module).items()
        if _is_defined_by(part, module)
    ]
    close = get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    holds = f"; it has: {', '.join(known)}" if known else ""
    raise PluginError(f"there is no {name!r} in {file}{hint}{holds}")


def _is_defined_by(value: object, module: ModuleType) -> bool:
    """True for a class or function that the module itself defines."""
    defining = getattr(value, "__module__", None)
    return defining == module.__name__ and hasattr(value, "__qualname__")


# -- installed packages --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Installed:
    """A plug-in of an installed package, not loaded yet.

    It has several ``entries`` if several packages use the name: `load` refuses
    them.
    """

    name: str
    entries: tuple[EntryPoint, ...]

    @property
    def source(self) -> Source:
        """The distribution, its version and the entry point."""
        entry = self.entries[0]
        distribution = "an unknown package"
        version = ""
        if entry.dist is not None:
            distribution = entry.dist.name
            version = entry.dist.version
        return Source(
            f"{distribution} {version} (entry point {self.name})",
            distribution=distribution,
            version=version,
            module=entry.value.partition(":")[0].strip(),
        )

    def load(self) -> Loaded:
        """Imports the plug-in's object. Raises PluginError, which names the
        package and its exception.
        """
        if len(self.entries) > 1:
            names = " and ".join(
                str(Installed(self.name, (entry,)).source)
                for entry in self.entries
            )
            raise PluginError(
                f"{names} have the same name: remove one of the packages"
            )
        try:
            with redirect_stdout(sys.stderr):
                value = self.entries[0].load()
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{self.source} {raised_anywhere(error)}"
            ) from error
        # Raises if the sources are no longer those that Python imported.
        imported_digest(self.source.module or "")
        return Loaded(value, self.source)


@cache
def installed(group: Group) -> Mapping[str, Installed]:
    """The plug-ins of installed packages in a group, by name, none loaded yet.

    Read once in a process.
    """
    plugins: dict[str, Installed] = {}
    entries = sorted(
        entry_points(group=f"hosenet.{group}"), key=attrgetter("name")
    )
    for name, of_name in groupby(entries, key=attrgetter("name")):
        plugins[name] = Installed(name, tuple(of_name))
    return plugins
