"""The command line of ``testbed``: its verbs and their common conventions.

Results go to standard output, narration to standard error; ``--json`` prints
results and errors as JSON. Exit codes: 0 good; 1 a result outside its stated
band; 2 a bad file or bad usage; 3 the machine cannot do it; 4 the run failed;
130 interrupted and cleaned up; 141 the output was closed by its reader.
"""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import keyword
import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from testbed.cli import console
from testbed.errors import (
    BadInput,
    MachineCannot,
    TestbedError,
    from_checkout,
    install_hint,
)
from testbed.owned_files import from_home

INTERRUPTED = 130
OUTPUT_CLOSED = 141
"""The exit code that shells report for an end by SIGPIPE."""
# The project's own: a module of theirs that is missing is a defect.
PACKAGES = ("testbed", "topologies", "jobs", "controller", "reproductions")
COMPLETE = "_TESTBED_COMPLETE"
"""Variable by which a shell asks for a script, or for completions of a line."""
ELSEWHERE = "make room there, or write to another place"
"""Hint where a disk is full."""


# One line per verb, in the order of --help.
VERBS = {
    "run": "Run an experiment on the live emulated network.",
    "up": "Build a file's network and leave it there, for tenants.",
    "status": "Say what network is up, and its tenants.",
    "tenant": "Add, list, show, re-rate and remove tenants of the network that is up.",
    "exec": "Run a command in a VM, or in all of a tenant.",
    "shell": "Open a shell in a VM.",
    "mininet": "Open Mininet's prompt on the network that is up.",
    "measure": "Measure a tenant among its VMs, against its reservation.",
    "capture": "Show or store the packets of a VM, a link or a tenant.",
    "link": "Show, take down and bring back links of the network that is up.",
    "switch": "Show and restart the Open vSwitches under the network that is up.",
    "verify": "Check tc, flows and packets of the network that is up against its plan.",
    "top": "Show the traffic of links and tenants, each second.",
    "watch": "Show a run, or the network that is up, in the browser.",
    "down": "Take the network down that is up.",
    "profile": "Measure an application's job profile on the live network.",
    "scaling": "Measure running times at smaller bandwidths against p·b/b', with p measured.",
    "simulate": "Run an experiment in the simulator.",
    "sweep": "Run an experiment at all combinations of values, with intervals.",
    "validate": "Check experiment files; creates nothing.",
    "plan": "Show the flows and tc text of an experiment; needs no root.",
    "doctor": "Say what this machine can do, and the command that changes what it cannot.",
    "clean": "Remove what an interrupted run left behind, and nothing else.",
    "audit": "Prove a run's invariants from its events.",
    "explain": "Say why a job waited, what stood in its way, and who overtook it.",
    "compare": "Set two runs beside each other: decisions, jobs, metrics.",
    "reproduce": "Run the papers' evaluations again, with a verdict per claim.",
    "claim": "Write a figure's rules, values and verdicts into one file, or check one.",
    "report": "Write a run's report again.",
    "runs": "List the runs that there are, with verdicts and sizes, or remove some.",
    "share": "Write a run as one HTML file that opens in any browser.",
    "lab": "List, start and check the labs of a course on SDN reservation.",
    "import": "Make an experiment file of another tool's network, workload or trace.",
    "examples": "Copy the example experiment files into a folder.",
    "data": "Say which published traces are here, and where the others come from.",
    "policy": "List and check policies, and begin one of your own.",
    "python": "Run Python with the testbed's packages.",
    "schema": "Print the JSON Schema of experiment files.",
}
MODULES = {
    "reproduce": "reproductions.reproduce",
    "claim": "reproductions.claim_command",
    "schema": "testbed.cli.validate",
    "policy": "testbed.cli.policies",
    "mininet": "testbed.cli.mininet_prompt",
    "import": "testbed.cli.import_file",
    "up": "testbed.cli.up",
    **dict.fromkeys(("status", "tenant", "down"), "testbed.cli.standing"),
    **dict.fromkeys(("exec", "shell"), "testbed.cli.in_vm"),
    **dict.fromkeys(("doctor", "clean"), "testbed.cli.machine"),
    **dict.fromkeys(
        ("audit", "explain", "report"), "testbed.cli.run_folders"
    ),
}
"""Modules of verbs' functions, where that is not ``testbed.cli.VERB``."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a verb and ends the process with its exit code."""
    console.open_standard_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # A file's name may hold bytes that are no text: they are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # The shell of a script starts background processes with SIGINT ignored.
        # By Python's handler they clean up all the same when it is sent.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:] if arguments is None else arguments)
    raise SystemExit(_code_after_flush(code))


def run(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code.

    An expected error is printed as a sentence and a hint; others are raised.
    Nothing is printed if the reader of the output has closed it, as ``| head
    -1`` does.
    """
    try:
        return _exit_code(arguments)
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except SystemExit as ended:
        # typer and rich end the process themselves if output is closed, with
        # exit code 1, which here means a result outside its band.
        if isinstance(ended.__context__, BrokenPipeError):
            return OUTPUT_CLOSED
        raise


def _exit_code(arguments: Sequence[str]) -> int:
    """Runs one command, and prints an expected error; returns the exit code."""
    arguments = _typed_words(_from_home(arguments))
    # Words after "--" are another program's.
    as_json = "--json" in takewhile(
        lambda argument: argument != "--", arguments
    )
    if not arguments:
        run(["--help"])
        return BadInput.exit_code
    try:
        command = application(arguments)
        # In its standalone mode typer would print errors in its own words and
        # end the process.
        status = command(
            args=list(arguments), prog_name="testbed", standalone_mode=False
        )
    except TestbedError as error:
        console.print_error(error, as_json=as_json)
        return error.exit_code
    except KeyboardInterrupt:
        console.say("interrupted")
        return INTERRUPTED
    except (typer.Abort, EOFError):
        console.say("aborted")
        return INTERRUPTED
    except Exception as error:
        expected = _usage_error(error, arguments) or _file_error(
            error, arguments
        )
        if expected is None:
            raise
        console.print_error(expected, as_json=as_json)
        return expected.exit_code
    # The code of typer.Exit, or None at the end of a verb's function.
    return status or 0


def _typed_words(arguments: Sequence[str]) -> Sequence[str]:
    """The words of the line that a shell asks to complete, else ``arguments``.

    The verb among them decides what may follow.
    """
    if COMPLETE not in os.environ:
        return arguments
    line = os.environ.get("COMP_WORDS")
    if line is None:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    # Never empty: the caller would print the help and end.
    return line.split()[1:] or ["--help"]


def _from_home(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the home folder in place of ``~`` at the beginning of
    a path.

    A shell leaves ``~`` as it is in quotes and after ``--option=``. Another
    program's words are not changed.
    """
    if _verb_in(arguments) in _PROGRAM_VERBS:
        return list(arguments)
    expanded: list[str] = []
    for number, argument in enumerate(arguments):
        # Words after it are another program's.
        if argument == "--":
            return [*expanded, *arguments[number:]]
        option, equals, value = argument.partition("=")
        if argument.startswith("~"):
            expanded.append(from_home(argument))
        # Elsewhere, as in ``--set KEY=~/x``, ``~`` is a part of a value.
        elif option.startswith("--") and value.startswith("~"):
            expanded.append(option + equals + from_home(value))
        else:
            expanded.append(argument)
    return expanded


def application(arguments: Sequence[str]) -> Callable[..., Any]:
    """The command line as typer's command.

    Only the verb that ``arguments`` name is imported; of all others it has the
    summaries, for the help.
    """
    app = typer.Typer(
        name="testbed",
        help="Data-centre schedulers that reserve bandwidth, on a real emulated network.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    called = _verb_in(arguments)
    for verb, summary in VERBS.items():
        if verb == called:
            _add_verb(app, verb, summary)
        else:
            app.command(verb, help=summary)(_placeholder)
    return typer.main.get_command(app)


def _add_verb(app: typer.Typer, verb: str, summary: str) -> None:
    function = _function(verb)
    # A group of commands, as ``testbed lab``.
    if isinstance(function, typer.Typer):
        for command in function.registered_commands:
            command.help = _paragraphs(command.callback)
        app.add_typer(function, name=verb, help=summary)
        return
    app.command(
        verb,
        help=_paragraphs(function),
        no_args_is_help=False,
        context_settings=_SETTINGS.get(verb),
    )(function)


_PROGRAM_VERBS = frozenset(("python", "exec"))
"""Verbs whose arguments are another program's words."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "python": {"ignore_unknown_options": True, "help_option_names": []},
}
"""typer's settings of verbs that pass on all options, ``--help`` too."""


def _paragraphs(function: Callable[..., Any] | None) -> str:
    """A function's docstring with each paragraph on one line.

    typer breaks lines at the terminal's width, and would keep other line ends.
    """
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(
        " ".join(paragraph.split()) for paragraph in paragraphs
    )


def _verb_in(arguments: Sequence[str]) -> str:
    # The first word that is no option: no global option takes a value.
    for argument in arguments:
        if not argument.startswith("-"):
            return argument
    return ""


def _function(verb: str) -> Callable[..., Any]:
    """A verb's function, or its group of commands. Imports the verb's module.

    Raises MachineCannot if a library is missing.
    """
    # Imports make some 100,000 objects that stay. To look for garbage among
    # them, now or later, would take a fifth of a short command's time.
    gc.disable()
    try:
        module = importlib.import_module(
            MODULES.get(verb, f"testbed.cli.{verb}")
        )
    except ModuleNotFoundError as error:
        # A missing module of the project is a defect, not a library to install.
        if (error.name or "").split(".")[0] in PACKAGES:
            raise
        raise _missing_library(verb, error.name) from None
    finally:
        gc.freeze()
        gc.enable()
    # ``import`` is a keyword of Python: its function is ``import_``.
    name = f"{verb}_" if keyword.iskeyword(verb) else verb
    function: Callable[..., Any] = getattr(module, name)
    return function


def _missing_library(verb: str, library: str | None) -> MachineCannot:
    hint = "install Hosenet again, with its dependencies"
    if from_checkout():
        hint = install_hint()
    return MachineCannot(
        f"testbed {verb} needs the Python package {library!r}, which is not installed",
        hint,
    )


def _placeholder() -> None:
    """Function of all verbs that are in the help alone, and are not called."""


def _show_version(value: bool) -> None:
    if value:
        from testbed.version import installed_version

        console.print_text(f"testbed {installed_version()}")
        raise typer.Exit


def _global_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Data-centre schedulers that reserve bandwidth, on a real emulated
    network.
    """


def _usage_error(
    error: Exception, arguments: Sequence[str]
) -> BadInput | None:
    """The error for a mistake on the command line, as typer raises it; None for
    any other exception.
    """
    # Recognized by its attributes: its class is click's, of which newer releases
    # of typer have a copy.
    format_message = getattr(error, "format_message", None)
    if format_message is None or getattr(error, "exit_code", None) is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "testbed"
    hint = f"see {command} --help"
    message = str(format_message())
    runs = list(filter(_names_a_run, arguments))
    if "extra argument" in message and len(runs) > 1:
        hint = (
            f"these are {len(runs)} runs: name one, as latest or {runs[-1]}"
        )
    return BadInput(message.rstrip("."), hint)


def _names_a_run(argument: str) -> bool:
    """True for a path to a run's folder, or below one.

    Several of them on a line are mostly a pattern that a shell has expanded.
    """
    from testbed.record.folder import is_a_runs

    return any(map(is_a_runs, Path(argument).parts))


# Verbs that write everything into the folder that --out names.
_WITH_OUT_FOLDER = frozenset(
    ("run", "profile", "scaling", "simulate", "sweep", "reproduce")
)
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
# Errors that another folder avoids.
_NO_PLACE = _NO_ROOM | {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
}


def _file_error(
    error: Exception, arguments: Sequence[str]
) -> BadInput | None:
    """The error for a file that cannot be read or written; None for any other
    exception, such as a closed pipe.
    """
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
        return None
    # Without a file's name a message is of use only about a full disk.
    if error.filename is None and error.errno not in _NO_ROOM:
        return None
    message = error.strerror or type(error).__name__
    if error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {message}"
    return BadInput(message, _hint_on(error, _verb_in(arguments)))


def _hint_on(error: OSError, verb: str) -> str | None:
    """A hint for the user of a verb that could not read or write a file."""
    if error.filename in (None, console.STANDARD_OUTPUT):
        return ELSEWHERE
    if verb in _WITH_OUT_FOLDER and error.errno in _NO_PLACE:
        return "name a folder you may write to with --out"
    if isinstance(error, PermissionError):
        return "change who may read and write there, or copy the folder to a place of your own"
    if error.errno in _NO_ROOM:
        return ELSEWHERE
    return None


def _code_after_flush(code: int) -> int:
    """Flushes both standard streams; returns the exit code to end with.

    If standard output was closed by its reader, 0 becomes 141. If it cannot be
    written for another reason, each code becomes 2.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or OUTPUT_CLOSED
        _discard(sys.stdout)
    except OSError as error:
        # With code 2 an error has been printed already.
        if code != BadInput.exit_code:
            why = f"{console.STANDARD_OUTPUT}: {error.strerror}"
            console.print_error(BadInput(why, ELSEWHERE), as_json=False)
        code = BadInput.exit_code
        _discard(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    return code


def _discard(stream: TextIO) -> None:
    """Discards the text that a stream still holds.

    Python flushes once more when it ends, and would report the failure itself.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
