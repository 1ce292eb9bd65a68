"""Keys of experiment files that name a plug-in: ``./mine.py:MyPolicy``,
``package.module:Name``.
"""

from __future__ import annotations

from pathlib import Path

from testbed.plugins import (
    FindFile,
    Loaded,
    PluginError,
    from_file,
    from_module,
    kept_name,
)
from testbed.spec.document import Location, Place, file_at
from testbed.spec.validation import value_in_words


def load_plugin(location: Location, example: str) -> Loaded | None:
    """The object that a key names; None, and reported, where it cannot be loaded.

    An exception of the object's own code is reported at its line.
    """
    form = f"must be as ./mine.py:{example} or package.module:{example}"
    written = location.value
    text = written if isinstance(written, str) else ""
    where, _, name = text.rpartition(":")
    # A class may stand inside another: dots are part of the name.
    if not where or not name.replace(".", "_").isidentifier():
        location.report(f"{form}, not {value_in_words(written)}")
        return None
    try:
        if not where.endswith(".py") and "/" not in where:
            return from_module(where, name, text)
        path = _plugin_file(location, where)
        if path is None:
            return None
        return from_file(path, name, text, _finder_beside(location, where))
    except PluginError as error:
        report_plugin(location, error)
    except OSError as error:
        location.report(
            f"{error.filename} cannot be read: {error.strerror}"
        )
    return None


def report_plugin(location: Location, error: PluginError) -> None:
    """Reports what a plug-in raised: at its line, where there is one, else
    at the key.
    """
    if error.file is None or not error.line:
        location.report(error.reason)
        return
    place = Place(str(error.file), error.line, error.column)
    location.report_at(place, error.reason)


def _plugin_file(location: Location, name: str) -> Path | None:
    """The file of that name; None, and reported, where there is none.

    It is looked for beside the experiment file and along the search path, then
    in ``plugins`` of a run folder whose ``spec.yaml`` is run again. A file that
    ``--set`` names is also looked for in the working directory.
    """
    elsewhere = [location.document.folder / "plugins" / kept_name(name)]
    # A value of --set has no line: it was typed in the working directory.
    if not location.place.line:
        elsewhere.append(Path.cwd() / name)
    return file_at(location, name, elsewhere=elsewhere)


def _finder_beside(location: Location, name: str) -> FindFile:
    """A finder of the modules that the file ``name`` imports, in all places
    where that file itself is looked for.
    """

    def find(file: str) -> Path | None:
        # Most imports are of Python's library: that there is no file is not
        # reported.
        problems = location.document.problems
        before = len(problems)
        path = _plugin_file(location, str(Path(name).parent / file))
        del problems[before:]
        return path

    return find
