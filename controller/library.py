"""Which OpenFlow library runs the controller: Ryu where it is installed, else os-ken.

Both have the same classes under different names; `app` is the one module that imports them.
Ryu works with green threads, which have to be put in place before anything imports sockets or
threads: hence a module of its own that imports neither.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from typing import Literal

LibraryName = Literal["ryu", "os-ken"]

LIBRARY_VARIABLE = "HOSENET_CONTROLLER_LIBRARY"
PACKAGES: dict[LibraryName, str] = {"ryu": "ryu", "os-ken": "os_ken"}


class LibraryMissing(RuntimeError):
    """Neither library, or not the one asked for, can be imported."""


def choose_library(wanted: str | None = None) -> LibraryName:
    """The library to use: `wanted`, else what HOSENET_CONTROLLER_LIBRARY names, else what is there.

    Raises `LibraryMissing` with the command that installs one.
    """
    named = wanted or os.environ.get(LIBRARY_VARIABLE) or "auto"
    there = [name for name, package in PACKAGES.items() if importlib.util.find_spec(package)]
    if named == "auto" and not there:
        raise LibraryMissing(
            "no OpenFlow library is installed: pip install os-ken,"
            " or sudo ./provision.sh install in a checkout"
        )
    if named not in ("auto", *PACKAGES):
        raise LibraryMissing(f"{named!r} is no OpenFlow library: choose auto, ryu or os-ken")
    for name in there:
        if named in ("auto", name):
            return name
    raise LibraryMissing(
        f"{named} is not installed: sudo ./provision.sh install in a checkout, or choose the other "
        f"library ({LIBRARY_VARIABLE}=auto takes the one that is there)"
    )


def prepare(name: LibraryName) -> None:
    """Put green threads in place if the library needs them. Call it before other imports."""
    os.environ[LIBRARY_VARIABLE] = name
    if name == "ryu":
        with warnings.catch_warnings():
            # Eventlet emits a deprecation warning on import.
            warnings.simplefilter("ignore")
            import eventlet

        eventlet.monkey_patch()
