"""The program that calls a student's functions, without its confinement."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.labs import submission_process
from testbed.labs.submission_process import READY


def reply(folder: Path, code: str) -> dict[str, Any]:
    """The reply to a call of ``answer()`` in ``code``."""
    (folder / "mine.py").write_text(code)
    request = {"n": 1, "file": "mine.py", "function": "answer"}
    done = subprocess.run(
        [sys.executable, "-P", submission_process.__file__, str(folder)],
        input=json.dumps({**request, "arguments": []}).encode(),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    record: dict[str, Any] = json.loads(done.stdout.removeprefix(READY))
    return record


def test_a_mistake_of_syntax_is_at_its_line_of_the_file(
    tmp_path: Path,
) -> None:
    assert reply(tmp_path, "import json\n\n)\n")["line"] == 3
    compiled = "def answer():\n    x = 1\n    return eval(')')\n"
    assert reply(tmp_path, compiled)["line"] == 3
    (tmp_path / "other.py").write_text("\n\n\n\n)\n")
    imports = "import json\nimport other\n"
    assert reply(tmp_path, imports)["line"] == 2


def test_a_value_that_is_too_large_is_not_called_no_list(
    tmp_path: Path,
) -> None:
    code = (
        "class Large(dict):\n"
        "    def items(self):\n        raise MemoryError\n\n\n"
        "def answer():\n    return Large(a=1)\n"
    )
    failed = reply(tmp_path, code)["failed"]
    assert failed == "answer returned more than fits in its memory"
