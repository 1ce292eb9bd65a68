"""Python processes that import nothing from the working directory.

``python -m MODULE`` and ``python -c TEXT`` look for modules in the working
directory first, then in PYTHONPATH. A command that root types in a student's
folder would run the student's ``json.py`` as root. Every Python that the
product starts is started by this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START = Path(__file__).resolve().with_name("python_start.py")
ISOLATED = ("-I", "-B")
"""Neither the working directory, nor variables PYTHON*, nor packages of the
user's; no bytecode, which root would leave in the owner's checkout.
"""
SEEDED = ("-P", "-s", "-B")
"""As ISOLATED, but variables are believed: for PYTHONHASHSEED, with an
environment that the caller makes.
"""


def python_command(
    module: str,
    *arguments: str,
    flags: Sequence[str] = ISOLATED,
) -> list[str]:
    """The command that runs a module of the testbed's in a Python of its own."""
    return [sys.executable, *flags, str(START), module, *arguments]


def without_python_variables() -> dict[str, str]:
    """This process's environment without the variables that Python reads."""
    variables = os.environ.items()
    return {name: text for name, text in variables if name[:6] != "PYTHON"}


@contextmanager
def isolated_spawn() -> Iterator[None]:
    """Keeps processes that `multiprocessing` spawns in the block, and its
    resource tracker, from importing from the working directory.

    They are started by ``python -c``, and get this process's search path
    later.
    """
    before = dict(os.environ)
    # By variables: multiprocessing makes the command line itself.
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        for name in ("PYTHONPATH", "PYTHONSAFEPATH"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
