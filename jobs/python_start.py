"""Runs a module of this checkout, or of this installation, as a program.

Started by :func:`jobs.python_child.python_command` as a file of an isolated
Python, which looks for modules neither in the working directory nor in
PYTHONPATH; this adds the folder of the testbed's packages.
"""

import os
import runpy
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - nothing more to load


def main() -> None:
    """Runs the module that the first argument names, with the others."""
    # An installed one is there already, behind the standard library.
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    # As `python -m` has it: the module's arguments come after its own name.
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
