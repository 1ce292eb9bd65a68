"""Choice of the OpenFlow library: Ryu where it is installed, else os-ken.

Both have the same classes under different names; `app` is the one module that
imports them. Ryu works with green threads, which have to be put in place before
anything imports sockets or threads: hence a module of its own that imports
neither.
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
    """The library `wanted`, or by HOSENET_CONTROLLER_LIBRARY, or installed.

    Raises `LibraryMissing` with the command that installs one.
    """
    name = wanted or os.environ.get(LIBRARY_VARIABLE) or "auto"
    if name not in ("auto", *PACKAGES):
        raise LibraryMissing(
            f"{name!r} is no OpenFlow library: choose auto, ryu or os-ken"
        )
    for library, package in PACKAGES.items():
        fits = name in ("auto", library)
        if fits and importlib.util.find_spec(package):
            return library
    if name == "auto":
        raise LibraryMissing(
            "no OpenFlow library is installed: pip install os-ken,"
            " or sudo ./provision.sh install in a checkout"
        )
    raise LibraryMissing(
        f"{name} is not installed: sudo ./provision.sh install in a checkout, "
        "or choose the other library "
        f"({LIBRARY_VARIABLE}=auto takes the one that is there)"
    )


def prepare(name: LibraryName) -> None:
    """Puts green threads in place if the library needs them.

    To be called before other imports.
    """
    os.environ[LIBRARY_VARIABLE] = name
    if name == "ryu":
        with warnings.catch_warnings():
            # Eventlet emits a deprecation warning on import.
            warnings.simplefilter("ignore")
            import eventlet

        eventlet.monkey_patch()
