"""Mininet topologies in Python files: the file is executed, and its ``Topo``
made.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from testbed.errors import MachineCannot, install_hint
from testbed.plugins import raised
from testbed.spec.document import (
    Location,
    Place,
    Problem,
    dotted,
    file_at,
    unknown_name,
)


def read_topo(
    name: str | None,
    wanted: str | None,
    args: Mapping[str, Any],
    here: Location,
) -> Any | None:
    """The Topo that ``wanted``, a class of the file ``name`` or an entry of its
    ``topos``, makes.

    None where there is none: the reason is reported, an exception at its line
    of the file. What the file prints goes to standard error. Raises
    MachineCannot without Mininet.
    """
    found = None if name is None else file_at(here / "path", name)
    if found is None or wanted is None:
        return None
    if find_spec("mininet") is None:
        raise MachineCannot(f"{here.place}: Mininet is missing", install_hint())
    try:
        with redirect_stdout(sys.stderr):
            return _made(found, wanted, args, here / "topo")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file raises what it likes
        _report(error, found, here)
        return None


def _made(
    file: Path, wanted: str, args: Mapping[str, Any], here: Location
) -> Any | None:
    from mininet.topo import Topo

    names = runpy.run_path(str(file), run_name="mininet_topology")
    topos = names.get("topos")
    known = dict(topos) if isinstance(topos, dict) else {}
    for name, value in names.items():
        if (
            isinstance(value, type)
            and issubclass(value, Topo)
            and value is not Topo
        ):
            known[name] = value
    if wanted not in known:
        here.report(unknown_name("Topo class", wanted, list(known) or ["none"]))
        return None
    topo = known[wanted](**args)
    if isinstance(topo, Topo) and hasattr(topo, "g"):
        return topo
    here.report(f"{wanted} makes {topo!r}, not a whole mininet.topo.Topo")
    return None


def _report(error: BaseException, file: Path, here: Location) -> None:
    """Reports what the user's code raised at the last of its lines that was on
    the way.
    """
    found = raised(error, file)
    if isinstance(error, TypeError) and not found.line:  # the call itself
        here.report(" ".join(str(error).split()), "args")
    else:
        place = Place(str(file), found.line, found.column)
        path = dotted((here / "path").path)
        here.document.problems.append(Problem(place, path, found.reason))
