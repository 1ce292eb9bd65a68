"""Packages of another Python environment, for a person's applications.

Its interpreter is asked where they are, by the user that the applications have:
an environment's start executes what is in it.
"""

from __future__ import annotations

import json
import subprocess
import sys

TIMEOUT_S = 120.0
# The standard library stays this interpreter's own.
QUESTION = """
import json, sys, sysconfig
standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
folders = []
for folder in sys.path:
    if folder not in standard and not folder.endswith(("lib-dynload", ".zip")):
        folders.append(folder)
print(json.dumps([sys.version_info[:2], folders]))
"""


def package_folders(python: str) -> list[str]:
    """Folders in which an interpreter looks for packages.

    Raises ValueError, in a sentence, for one that cannot be asked, or is of
    another version: compiled packages fit one version alone.
    """
    # Isolated: the current folder and PYTHONPATH would be in the answer,
    # and a json.py of theirs in place of the standard one.
    command = [python, "-I", "-c", QUESTION]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_S,
        )
        version, folders = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ValueError(f"python: {python}: {error}") from None
    needed = list(sys.version_info[:2])
    if version != needed:
        ours = ".".join(map(str, needed))
        theirs = ".".join(map(str, version))
        raise ValueError(
            f"python: {python} is Python {theirs}, applications run on {ours}: "
            f"python{ours} -m venv makes an environment for them"
        )
    return list(map(str, folders))
