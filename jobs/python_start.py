"""Runs a module of this checkout, or of this installation, as a program.

Started by :func:`jobs.python_child.python_command` as a file of an isolated
Python, which looks for modules neither in the working directory nor in
PYTHONPATH. This program adds the folder of the testbed's packages.
"""

import os
import runpy
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib would have to be loaded


def main() -> None:
    """Runs the module of the first argument, with the arguments after it."""
    # An installation's folder is searched already, after the standard library.
    # It may be listed by a symbolic link's name.
    if ROOT not in map(os.path.realpath, sys.path):
        sys.path.insert(0, ROOT)
    # As `python -m` has it: the module's name precedes its arguments.
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
