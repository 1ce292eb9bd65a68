"""The ``controller`` section: a person's OpenFlow applications, in place of the
testbed's.
"""

from __future__ import annotations

import ast
import re
import shutil
import warnings
from collections.abc import Iterable
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from testbed.owned_files import from_home
from testbed.spec.controller_choice import ControllerChoice
from testbed.spec.document import Location, Place, file_at
from testbed.spec.unit_types import as_list, refused_value
from testbed.spec.validation import Section

# Name of an importable module, such as ``ryu.app.ofctl_rest``.
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
# A host has no empty label (127.0.0..1), and nobody listens at port 0.
REMOTE = re.compile(
    r"tcp:([\w-]+(?:\.[\w-]+)*|\[[0-9a-fA-F:]+\]):([1-9][0-9]{0,4})"
)
HELD = ("--ofp-", "--ctl-", "--ca-certs")
"""Prefixes of the library's options for its sockets to switches, which only the
testbed may set.
"""


def _as_arguments(value: object) -> object:
    """Options as a command's arguments, from a text or a mapping."""
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, dict):
        return value
    arguments = []
    for key, setting in value.items():
        name = str(key).lstrip("-").replace("_", "-")
        # Ryu reads its options by oslo.config, where `no` before an option's
        # name turns it off.
        if setting is True:
            arguments.append(f"--{name}")
        elif setting is False:
            arguments.append(f"--no{name}")
        elif isinstance(setting, int | float | str):
            arguments.append(f"--{name}={setting}")
        else:
            raise refused_value(
                f"{name} must be a text, a number, true or false"
            )
    return arguments


def _as_address(value: str) -> str:
    """A controller's address, unchanged if it has the form of one."""
    match = REMOTE.fullmatch(value)
    if match is None or int(match[2]) > 65535:
        raise refused_value(
            f"must be like tcp:127.0.0.1:6653, not {value!r}"
        )
    return value


Address = Annotated[
    str,
    AfterValidator(_as_address),
    WithJsonSchema({"type": "string", "pattern": f"^{REMOTE.pattern}$"}),
]
Applications = Annotated[
    list[str],
    BeforeValidator(as_list),
    WithJsonSchema(
        {"type": ["string", "array"], "items": {"type": "string"}}
    ),
]
Arguments = Annotated[
    list[str],
    BeforeValidator(_as_arguments),
    WithJsonSchema(
        {
            "type": ["string", "array", "object"],
            "items": {"type": "string"},
            "additionalProperties": {
                "type": ["string", "number", "boolean"]
            },
        }
    ),
]


class ControllerSection(Section):
    """The controller of the live network; without this section, the testbed's
    own.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["app"]}, {"required": ["remote"]}]
        }
    )

    app: Applications = Field(default=[])
    """a Ryu or os-ken application, a Python file beside this one, or a
    module such as ryu.app.ofctl_rest; a list: several at once
    """
    options: Arguments = Field(default=[])
    """options as ryu-manager takes them: --observe-links, or
    {observe-links: true}
    """
    python: str | None = None
    """an interpreter, or the folder of a virtual environment, whose
    packages applications may import
    """
    packages: str | None = None
    """a requirements file; what it names is installed by pip, as the user
    who calls sudo, into an environment in that user's cache
    """
    remote: Address | None = None
    """a controller that runs already, tcp:127.0.0.1:6653: ONOS,
    Floodlight, a Ryu of your own
    """
    confined: bool = False
    """run it in namespaces of its own: it writes no file of the
    machine, and all that it starts ends with it
    """


def controller_choice(
    section: ControllerSection | None, location: Location
) -> ControllerChoice | None:
    """The chosen applications with their options, or a running controller.

    None without a section, or if its applications or address cannot be read.
    Problems are reported to the document.
    """
    if section is None or not section.is_readable("app", "remote"):
        return None
    if section.remote is not None:
        # Keys for a controller that the testbed starts.
        for key in ("app", "options", "python", "packages", "confined"):
            if key in section.model_fields_set:
                location.report(
                    "cannot stand beside remote: leave one out", key
                )
        return ControllerChoice(remote=section.remote)
    options = tuple(section["options"] or ())
    for option in options:
        if option.startswith(HELD):
            location.report(
                f"{option}: the testbed has the port for switches;"
                " --openflow-port of its commands chooses another",
                "options",
            )
    return ControllerChoice(
        apps=_applications(section, location),
        options=options,
        confined=bool(section["confined"]),
        python=_interpreter(section["python"], location / "python"),
        packages=_requirements(section, location),
    )


def _applications(
    section: ControllerSection, location: Location
) -> tuple[str, ...]:
    """Paths of files and names of modules that can be used.

    Problems of the others are reported.
    """
    if "app" not in section.model_fields_set:
        location.report(
            "is required: a Ryu or os-ken application, "
            "or remote: tcp:127.0.0.1:6653",
            "app",
        )
    elif not section.app:
        location.report("names no application", "app")
    applications = []
    for index, name in enumerate(section.app):
        place = location / "app"
        # A single application without a list has the place of its key.
        if isinstance(place.value, list):
            place /= index
        application = _application(name, place)
        if application is not None:
            applications.append(application)
    return tuple(applications)


def _requirements(section: ControllerSection, location: Location) -> str:
    """Absolute path of the requirements file, or empty."""
    if section["packages"] is None:
        return ""
    for other in ("python", "confined"):
        if section[other]:
            location.report(
                f"cannot stand beside {other}: make an environment, and"
                " name it by python",
                "packages",
            )
    file = file_at(location / "packages", section["packages"])
    return "" if file is None else str(file.absolute())


def _interpreter(name: str | None, location: Location) -> str:
    """Absolute path of the interpreter, or empty."""
    if name is None:
        return ""
    # Links are not resolved: a virtual environment's interpreter is a link, and
    # finds its packages by the path through which it is started.
    path = location.document.folder.absolute() / from_home(name)
    for interpreter in (path / "bin" / "python", path):
        # None also for a path that cannot be: too long a name, or a null byte.
        found = shutil.which(interpreter)
        if found is not None:
            return str(found)
    location.report(f"there is no interpreter at {path}")
    return ""


def _application(name: str, location: Location) -> str | None:
    """A file's path, or a module's name.

    A file is compiled, not run, so that syntax errors are reported at their
    line, and relative imports that would fail. None if there is a problem.
    """
    if MODULE.fullmatch(name) and not name.endswith(".py"):
        return name
    file = file_at(location, name)
    if file is None:
        return None
    place = Place(str(file))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes(), str(file))
            # By default the future statements of this module would hold in
            # the application too.
            compile(tree, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        place = Place(str(file), error.lineno or 0, error.offset or 0)
        message = f"is not Python: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        message = f"cannot be compiled: {error}"
    else:
        relative = _relative_import(tree.body)
        if relative is None:
            return str(file.absolute())
        place = Place(str(file), relative.lineno, relative.col_offset + 1)
        absolute: ast.stmt = ast.Import(relative.names)
        if relative.module:
            absolute = ast.ImportFrom(relative.module, relative.names, 0)
        message = (
            f"{ast.unparse(relative)!r} fails: the file is started by itself,"
            " as part of no package: write"
            f" {ast.unparse(absolute)!r}, modules beside the file are found"
        )
    location.report_at(place, message)
    return None


def _relative_import(
    statements: Iterable[ast.stmt],
) -> ast.ImportFrom | None:
    """The first relative import that is executed for certain; None without one.

    One inside another statement, as of a ``try``, may have another way out.
    """
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            return statement
    return None
