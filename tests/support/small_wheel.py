"""A package that pip can install without a network."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

NOBODYS_INDEX = "http://127.0.0.1:9/simple"
"""An address at which nobody listens."""


def write_wheel(folder: Path) -> None:
    """Writes ``needed`` 1.0, a module with a VALUE of 11."""
    info = "needed-1.0.dist-info"
    with ZipFile(folder / "needed-1.0-py3-none-any.whl", "w") as file:
        file.writestr("needed.py", "VALUE = 11\n")
        file.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n",
        )
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")


def only_from(folder: Path) -> dict[str, str]:
    """Variables with which pip looks in a folder and nowhere else."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": "/dev/null",
    }
