"""The command's conventions: streams, exit codes, --json, and what becomes of errors."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from testbed import events
from testbed.audit.history import Audit, Result
from testbed.cli import command_line, console
from testbed.cli.options import Json
from testbed.cli.run_folders import _show_audit
from testbed.cli.run_progress import RunProgress
from testbed.errors import BadInput, MachineCannot, RunFailed, TestbedError
from testbed.spec.document import Place, Problem, SpecErrors
from testbed.version import installed_version

EXAMPLES = Path(__file__).parents[3] / "examples"


def verb_that(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]
) -> None:
    """Make ``testbed probe`` do something."""

    def probe(as_json: Json = False) -> None:
        action()

    monkeypatch.setattr(command_line, "VERBS", {"probe": "Probe."})
    monkeypatch.setattr(command_line, "_function", lambda _: probe)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("b", "do x"), 2),
        (MachineCannot("m", "do x"), 3),
        (RunFailed("r", "do x"), 4),
    ],
)
def test_an_error_is_one_sentence_and_its_hint(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: TestbedError,
    code: int,
) -> None:
    def fail() -> None:
        raise error

    verb_that(monkeypatch, fail)
    assert command_line.run(["probe"]) == code
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == f"error: {error.message}\nhint: do x\n"
    assert command_line.run(["probe", "--json"]) == code
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {
        "error": error.message,
        "exit_code": code,
        "hint": "do x",
    }
    assert streams.err == ""


def test_problems_of_a_file_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise SpecErrors(
            [Problem(Place("f.yaml", 2, 3), "a[1]", "[bold]is[/] wrong")]
        )

    verb_that(monkeypatch, fail)
    assert command_line.run(["probe"]) == 2
    assert (
        capsys.readouterr().err == "f.yaml:2:3: a[1]: [bold]is[/] wrong\n"
    )
    assert command_line.run(["probe", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["problems"] == [
        {
            "file": "f.yaml",
            "line": 2,
            "column": 3,
            "path": "a[1]",
            "message": "[bold]is[/] wrong",
        }
    ]


@pytest.mark.parametrize("place", [":100:", ":x:", ":1234:", "[red]:o:[/]"])
def test_what_a_file_says_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    """rich has emoji named 100, 1234, o and x; a place in a file is none of them."""

    def fail() -> None:
        raise BadInput(f"f.yaml{place}7 is wrong", f"see {place}")

    verb_that(monkeypatch, fail)
    assert command_line.run(["probe"]) == 2
    assert (
        capsys.readouterr().err
        == f"error: f.yaml{place}7 is wrong\nhint: see {place}\n"
    )
    console.out().print(place, markup=False)
    assert capsys.readouterr().out == f"{place}\n"


@pytest.mark.parametrize("name", ["a:x:b", "[red]a", "a[/]"])
def test_a_jobs_name_is_no_markup_in_a_bar(name: str) -> None:
    # As the consoles of testbed.cli.console are made.
    terminal = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=120,
        emoji=False,
        markup=False,
    )
    with RunProgress(terminal, {name: 5.0}, label=name) as bar:
        bar(
            events.JobReserved(
                0.0, name, 0.0, None, 5, 5.0, 0, [[0, 1]], []
            )
        )
        terminal.print(bar._bars.get_renderable())
    shown = cast(io.StringIO, terminal.file).getvalue()
    assert shown.count(name) >= 3


def test_a_job_that_starts_anew_has_one_bar() -> None:
    terminal = Console(
        file=io.StringIO(), force_terminal=True, width=120, emoji=False
    )
    reserved = events.JobReserved(
        0.0, "a", 0.0, None, 5, 5.0, 0, [[0, 1]], []
    )
    with RunProgress(terminal, {"a": 5.0}) as bar:
        bar(reserved)
        bar(events.JobRequeued(1.0, "a", "a link failed"))
        assert [task.description for task in bar._bars.tasks] == ["run"]
        bar(reserved)
        assert len(bar._bars.tasks) == 2
        bar(events.JobEnded(5.0, "a", "finished", "", 5.0, {}))
        assert [task.description for task in bar._bars.tasks] == ["run"]


def test_an_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    verb_that(monkeypatch, interrupt)
    assert command_line.run(["probe"]) == 130
    assert capsys.readouterr().out == ""


def test_a_defect_of_ours_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("ours")

    verb_that(monkeypatch, fail)
    with pytest.raises(ZeroDivisionError):
        command_line.run(["probe"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["validat"],
            "error: No such command 'validat'. Did you mean 'validate'?",
        ),
        (
            ["validate"],
            "error: Missing argument 'FILE...'\nhint: see testbed validate --help",
        ),
        (["validate", "--jsn", "x"], "error: No such option: --jsn"),
        (
            ["validate", "x", "--set", "seed"],
            "error: --set seed: write it as KEY=VALUE",
        ),
        (["--frob"], "error: No such option: --frob"),
        (
            [
                "explain",
                "runs/20260101T000000Z-day-s1/fcfs",
                "runs/20260101T000001Z-day-s1/fcfs",
                "second",
            ],
            "\nhint: these are 2 runs: name one, as latest or runs/20260101T000001Z-day-s1/fcfs",
        ),
    ],
)
def test_wrong_usage_is_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command_line.run(arguments) == 2
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.out == ""


NO_OUT = "change who may read and write there, or copy the folder to a place of your own"
WITH_OUT = "name a folder you may write to with --out"


@pytest.mark.parametrize(
    ("verb", "code", "hint"),
    [
        ("report", errno.EACCES, NO_OUT),
        ("simulate", errno.EACCES, WITH_OUT),
        ("reproduce", errno.ENOTDIR, WITH_OUT),
        ("report", errno.ENOSPC, command_line.ELSEWHERE),
        ("report", errno.EIO, None),
    ],
)
def test_a_file_that_cannot_be_read_or_written_is_2_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    code: int,
    hint: str | None,
) -> None:
    def fail(as_json: Json = False) -> None:
        raise OSError(code, os.strerror(code), "/there/jobs.csv")

    monkeypatch.setattr(command_line, "_function", lambda _: fail)
    assert command_line.run([verb]) == 2
    message = f"error: /there/jobs.csv: {os.strerror(code)}\n"
    assert capsys.readouterr().err == message + (
        "" if hint is None else f"hint: {hint}\n"
    )
    assert command_line.run([verb, "--json"]) == 2
    assert json.loads(capsys.readouterr().out).get("hint") == hint


def test_the_package_is_the_command_too() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "testbed", "--version"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.stdout == f"testbed {installed_version()}\n"
    assert shown.returncode == 0


def test_a_closed_output_pipe_is_not_reported_as_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe", "standard output")

    verb_that(monkeypatch, fail)
    before = sys.stdout, sys.stderr
    code = command_line.run(["probe"])
    # typer puts others in their place.
    sys.stdout, sys.stderr = before
    assert code == command_line.OUTPUT_CLOSED
    assert capsys.readouterr().err == ""


def test_an_error_that_no_file_has_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ConnectionRefusedError(
            errno.ECONNREFUSED, "Connection refused"
        )

    verb_that(monkeypatch, fail)
    with pytest.raises(ConnectionRefusedError):
        command_line.run(["probe"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["schema"], ["schema", "--json"], ["--version"], ["data"]]
)
@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="there is no /dev/full"
)
def test_a_full_standard_output_is_2(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "testbed.cli.main", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
            cwd=EXAMPLES.parent,
            env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        )  # fmt: skip
    assert done.returncode == 2
    message = f"error: standard output: No space left on device\nhint: {command_line.ELSEWHERE}\n"
    assert done.stderr == message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["validate", "no-such-file.yaml"], 2),
        (["report", "no-such-run"], 2),
        (["validate", str(EXAMPLES / "quickstart.yaml")], 0),
    ],
)
@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="there is no /dev/full"
)
def test_a_full_standard_error_leaves_the_exit_code(
    arguments: list[str], code: int
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "testbed.cli.main", *arguments],
            stdout=subprocess.PIPE, stderr=full, timeout=60, check=False,
            cwd=EXAMPLES.parent,
        )  # fmt: skip
    assert done.returncode == code


@pytest.mark.slow
def test_a_file_whose_name_is_no_text_is_shown_all_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.yaml")
    path.write_text((EXAMPLES / "quickstart.yaml").read_text("utf-8"))
    for option in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "testbed.cli.main", "validate", str(path), *option],
            capture_output=True, text=True, timeout=60, check=False, cwd=EXAMPLES.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "\\udcff.yaml" in done.stdout


def test_wrong_usage_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["validate", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_no_argument_shows_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.run([]) == 2
    assert "validate" in capsys.readouterr().out
    assert command_line.run(["--help"]) == 0


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["--version"]) == 0
    assert capsys.readouterr().out == f"testbed {installed_version()}\n"


def test_every_verb_that_is_there_has_its_function() -> None:
    for verb in command_line.VERBS:
        assert callable(command_line._function(verb))


def test_a_missing_library_breaks_only_its_verb(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "lacking.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        command_line,
        "VERBS",
        {"lacking": "Needs a library.", "schema": "Schema."},
    )
    monkeypatch.setitem(command_line.MODULES, "lacking", "lacking")
    assert command_line.run(["lacking"]) == 3
    assert "'no_such_library'" in capsys.readouterr().err
    assert command_line.run(["schema"]) == 0
    assert command_line.run(["--help"]) == 0


@pytest.mark.slow
def test_commands_on_a_standing_network_import_little() -> None:
    """They are typed one after another: each waits for what it imports."""
    code = (
        "import sys; from testbed.cli import in_vm, link, standing, switch;"
        " heavy = {'numpy', 'testbed.events', 'testbed.spec.experiment'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=EXAMPLES.parent,
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_no_colour_codes_reach_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.cli.main", "validate", "no-such-file.yaml"],
        capture_output=True, text=True, timeout=60, check=False, cwd=EXAMPLES.parent,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "no-such-file.yaml: there is no such file\n"


def test_progress_is_silent_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with console.progress("counting", total=2) as bars:
        bars.advance(bars.task_ids[0])
    streams = capsys.readouterr()
    assert streams.out == streams.err == ""


def test_a_scripts_background_job_can_be_interrupted_too() -> None:
    """A shell without job control starts such a job with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            command_line.main(["--version"])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("several", [False, True])
def test_lines_of_several_policies_name_the_policy(
    *, several: bool
) -> None:
    plain = Console(file=io.StringIO(), width=120, emoji=False)
    with RunProgress(
        plain, {"a": 5.0}, label="fcfs", several=several
    ) as bar:
        bar(
            events.JobReserved(0.0, "a", 0.0, None, 5, 5.0, 0, [[0, 1]], [])
        )
        bar(events.JobEnded(5.0, "a", "finished", "", 5.0, {}))
    lines = cast(io.StringIO, plain.file).getvalue().splitlines()
    begin = "fcfs: a: " if several else "a: "
    assert len(lines) >= 2
    assert all(line.startswith(begin) for line in lines if line.strip())


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_closed_terminal_or_a_full_disk_stops_no_narration(
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lost(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr("sys.stderr", Lost())
    console.say("one")
    with RunProgress(console.err(), {"a": 5.0}) as bar:
        bar(events.JobEnded(5.0, "a", "finished", "", 5.0, {}))


@pytest.mark.slow
def test_python_is_the_interpreter_that_has_the_testbed() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "testbed.cli.main", "python", "-c"),
            "import sys, testbed; print(sys.executable, sys.argv[1:])",
            "--help",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{sys.executable} ['--help']\n"


def test_help_flows_to_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert command_line.run(["run", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (codes,) = [line for line in lines if "Exit codes" in line]
    assert len(codes.strip()) > 100


def test_piped_tables_heed_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "66")
    assert console.out().width == 66
    monkeypatch.delenv("COLUMNS")
    assert console.out().width == console.PIPED_WIDTH


def test_findings_and_names_of_an_audit_stand_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    results = []
    for name in ("short", "a-check-of-a-very-long-name"):
        results.append(
            Result(name, "what " * 12, "not applicable", "no reason", 0, ())
        )
    _show_audit(Audit("path", "day", "vc", 3, tuple(results)))
    printed = capsys.readouterr().out
    assert "a-check-of-a-very-long-name not applicable" in printed
    assert all(len(line) <= 60 for line in printed.splitlines())
