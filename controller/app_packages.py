"""Folders with the packages of another Python environment, for a person's
applications.

Its interpreter lists them. It runs as the user that the applications have,
since the start of an environment executes code that is in it.
"""

from __future__ import annotations

import json
import subprocess
import sys

TIMEOUT_S = 120.0
# Leaves out the standard library: the applications keep this interpreter's.
PROGRAM = """
import json, sys, sysconfig
standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
folders = []
for folder in sys.path:
    if folder not in standard and not folder.endswith(("lib-dynload", ".zip")):
        folders.append(folder)
print(json.dumps(["%d.%d" % sys.version_info[:2], folders]))
"""


def package_folders(python: str) -> list[str]:
    """Folders in which an interpreter looks for packages.

    ``python``: its path. Raises ValueError, with a sentence, for one that does
    not list them, or has another version than this one: compiled packages fit
    one version alone.
    """
    # -I: without the current folder and PYTHONPATH, which are not the
    # environment's, and whose json.py would hide the standard one. The program
    # comes from the input: errors quote the command.
    command = [python, "-I", "-"]
    try:
        listing = subprocess.run(
            command,
            capture_output=True,
            check=True,
            input=PROGRAM,
            text=True,
            timeout=TIMEOUT_S,
        )
        # The last line: the start of the environment may print others.
        text = listing.stdout.rstrip().rpartition("\n")[2]
        version, folders = json.loads(text)
    # Of a program that is no Python the output may be any JSON.
    except (
        OSError,
        subprocess.SubprocessError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"python: {python}: {error}") from None
    needed = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != needed:
        raise ValueError(
            f"python: {python} is Python {version}, applications run on"
            f" {needed}: python{needed} -m venv makes an environment for them"
        )
    return list(map(str, folders))
