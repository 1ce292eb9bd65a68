"""The ``controller`` section: a person's OpenFlow application in place of ours."""

from __future__ import annotations

import warnings
from pathlib import Path

from pydantic import Field

from testbed.spec.document import Location, Place, Problem, dotted, file_at
from testbed.spec.validation import Section


class ControllerSection(Section):
    """The controller of the live network; without this section, the testbed's
    own.
    """

    app: str = Field(
        description="a Ryu or os-ken application, a Python file beside this one"
    )
    confined: bool = Field(
        default=False,
        description="run it in namespaces of its own: it writes no file of the "
        "machine, and all that it starts ends with it",
    )


def controller_app(
    section: ControllerSection | None, here: Location
) -> Path | None:
    """The application's file. None without one; what is wrong with it is
    reported.

    It is compiled and not run: a mistake of syntax is reported at its line of
    the file.
    """
    name = None if section is None else section["app"]
    found = None if name is None else file_at(here / "app", name)
    if found is None:
        return None
    place = Place(str(found))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(found.read_bytes(), str(found), "exec", dont_inherit=True)
        return found.absolute()
    except SyntaxError as error:
        place = Place(str(found), error.lineno or 0, error.offset or 0)
        message = f"is not Python: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        message = f"cannot be compiled: {error}"
    here.document.problems.append(
        Problem(place, dotted((here / "app").path), message)
    )
    return None
