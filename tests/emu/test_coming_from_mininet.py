"""docs/coming-from-mininet.md as it would be typed, its script too."""

from __future__ import annotations

import io
import shutil
from contextlib import redirect_stdout
from typing import Any

import pytest

from tests.emu.test_hands_on import up  # noqa: F401 - a fixture
from tests.emu.test_run import REPOSITORY
from tests.emu.test_transcript import Shell, blocks, same_words, shell  # noqa: F401 - a fixture
from tests.unit.docs.test_coming_from_mininet import PAGE, write_files

pytestmark = pytest.mark.needs("mininet")


@pytest.mark.long
def test_the_page_as_it_would_be_typed(
    shell: Shell,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    up: Any,  # noqa: F811
) -> None:
    write_files(shell.folder)
    shutil.copy(
        REPOSITORY / "examples" / "learning_switch.py", shell.folder
    )
    shell.type("unset DISPLAY")
    for block in blocks(PAGE):
        for one in block:
            code, text = shell.type(one.line)
            assert code == one.exit_code, f"{one.line}\n{text}"
            assert same_words(one.shown, text), f"{one.line}\n{text}"
    # The script, by another network of the same file.
    monkeypatch.chdir(shell.folder)
    script = PAGE.rpartition("```python\n")[2].split("```")[0]
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(script, "script.py", "exec"), {})  # noqa: S102 - the page's
    assert printed.getvalue().startswith("10.0.4.1")
