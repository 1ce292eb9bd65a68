"""The command line of ``testbed``: thin verbs, the same conventions for all of them.

Data on standard output, narration on standard error, ``--json`` everywhere.
Exit codes: 0 good; 1 a result outside its stated band; 2 bad file or usage; 3
the machine cannot do it; 4 the run failed; 130 interrupted and cleaned up; 141
the reader of its output has closed it.
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
"""As shells report an end by SIGPIPE."""
PACKAGES = ("testbed", "topologies", "jobs", "controller", "reproductions")
COMPLETE = "_TESTBED_COMPLETE"
"""By it a shell asks typer for a script, or for the words that may follow."""
ELSEWHERE = "make room there, or write to another place"


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
"""Where a verb's function is, if not in ``testbed.cli.VERB``."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a verb and ends the process with its exit code."""
    console.open_standard_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # A file's name may hold bytes that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A script's shell starts background processes with SIGINT ignored.
        # With Python's handler they clean up when it is sent.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:] if arguments is None else arguments)
    raise SystemExit(_written(code))


def run(arguments: Sequence[str]) -> int:
    """One command; its exit code. Errors of the testbed end here, as one
    sentence and the hint. Output whose reader has closed it, as ``| head -1``
    does, ends it without a word.
    """
    try:
        return _answered(arguments)
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except SystemExit as ended:
        # typer and rich end the process themselves where output is closed,
        # with the code of a result outside its band.
        if isinstance(ended.__context__, BrokenPipeError):
            return OUTPUT_CLOSED
        raise


def _answered(arguments: Sequence[str]) -> int:
    arguments = _completed(_from_home(arguments))
    # What follows "--" is for another program.
    as_json = "--json" in takewhile(
        lambda argument: argument != "--", arguments
    )
    if not arguments:
        run(["--help"])
        return BadInput.exit_code
    try:
        command = application(arguments)
        # typer would end the process itself, in words of its own.
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
        shown = _usage_error(error, arguments) or _refused_by_the_system(
            error, arguments
        )
        if shown is None:
            raise
        console.print_error(shown, as_json=as_json)
        return shown.exit_code
    return status if isinstance(status, int) else 0


def _completed(arguments: Sequence[str]) -> Sequence[str]:
    """The words of a line that is being typed, where a shell asks how they may go
    on; otherwise ``arguments``.
    """
    if COMPLETE not in os.environ:
        return arguments
    line = os.environ.get("COMP_WORDS")
    if line is None:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    # Not empty: without words the caller would print help and end.
    return line.split()[1:] or ["--help"]


def _from_home(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with ``~`` replaced by the home folder.

    A shell leaves it as it is in quotes, and after ``--option=``. Another
    program's words are not changed.
    """
    if _verb_in(arguments) in _OTHERS_WORDS:
        return list(arguments)
    expanded: list[str] = []
    for number, argument in enumerate(arguments):
        # What follows is another program's.
        if argument == "--":
            return [*expanded, *arguments[number:]]
        option, equals, value = argument.partition("=")
        if argument.startswith("~"):
            expanded.append(from_home(argument))
        # Shells expand ``~`` at the beginning of a word alone.
        elif option.startswith("--") and value.startswith("~"):
            expanded.append(option + equals + from_home(value))
        else:
            expanded.append(argument)
    return expanded


def application(arguments: Sequence[str]) -> Callable[..., Any]:
    """The command line; only the verb that ``arguments`` name is imported."""
    app = typer.Typer(
        name="testbed",
        help="Data-centre schedulers that reserve bandwidth, on a real emulated network.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    wanted = _verb_in(arguments)
    for verb, summary in VERBS.items():
        if verb == wanted:
            _add_verb(app, verb, summary)
        else:
            app.command(verb, help=summary)(_placeholder)
    return typer.main.get_command(app)


def _add_verb(app: typer.Typer, verb: str, summary: str) -> None:
    function = _function(verb)
    # A verb with verbs of its own.
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


_OTHERS_WORDS = frozenset(("python", "exec"))
"""Verbs with the words of another program."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "python": {"ignore_unknown_options": True, "help_option_names": []},
}
"""Settings of verbs that pass another program's options on."""


def _paragraphs(function: Callable[..., Any] | None) -> str:
    """A function's docstring with each paragraph on one line: terminals differ
    in width.
    """
    text = inspect.getdoc(function) or ""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _verb_in(arguments: Sequence[str]) -> str:
    # No global option takes a value: the first other word is the verb.
    for argument in arguments:
        if not argument.startswith("-"):
            return argument
    return ""


def _function(verb: str) -> Callable[..., Any]:
    """Function of a verb. Raises MachineCannot if a library is missing."""
    # Imports make some 100,000 objects that stay. Collections while they are
    # made, and of them later, would take a fifth of a short command's time.
    gc.disable()
    try:
        module = importlib.import_module(
            MODULES.get(verb, f"testbed.cli.{verb}")
        )
    except ModuleNotFoundError as error:
        # A missing module of our own is a fault, not a library to install.
        if (error.name or "").split(".")[0] in PACKAGES:
            raise
        raise _missing_library(verb, error.name) from None
    finally:
        gc.freeze()
        gc.enable()
    # A word of Python's cannot be a function's name.
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
    """Stands in the list of verbs for those that this command does not call."""


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
    """A mistake on the command line, as typer raises it; None for any other
    exception.
    """
    # By its attributes: newer releases of typer bring their own click, whose
    # classes are others.
    format_message = getattr(error, "format_message", None)
    if format_message is None or getattr(error, "exit_code", None) is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "testbed"
    hint = f"see {command} --help"
    runs = [argument for argument in arguments if _names_a_run(argument)]
    if "extra argument" in str(format_message()) and len(runs) > 1:
        hint = (
            f"these are {len(runs)} runs: name one, as latest or {runs[-1]}"
        )
    return BadInput(str(format_message()).rstrip("."), hint)


def _names_a_run(argument: str) -> bool:
    """Returns True for a path inside a run's folder.

    Several of them on a line are mostly a pattern that a shell expanded.
    """
    from testbed.record.folder import is_a_runs

    return any(map(is_a_runs, Path(argument).parts))


# Verbs whose --out names the folder below which they write everything.
_WITH_OUT_FOLDER = frozenset(
    ("run", "profile", "scaling", "simulate", "sweep", "reproduce")
)
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NO_PLACE = _NO_ROOM | {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
}


def _refused_by_the_system(
    error: Exception, arguments: Sequence[str]
) -> BadInput | None:
    """A file that cannot be read or written; None for any other exception, a
    closed pipe among them.
    """
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
        return None
    # Without a file's name only a full disk explains itself.
    if error.filename is None and error.errno not in _NO_ROOM:
        return None
    message = error.strerror or type(error).__name__
    if error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {message}"
    return BadInput(message, _hint_on(error, _verb_in(arguments)))


def _hint_on(error: OSError, verb: str) -> str | None:
    """A hint on a place that cannot be read or written, for a verb's user."""
    if error.filename in (None, console.STANDARD_OUTPUT):
        return ELSEWHERE
    if verb in _WITH_OUT_FOLDER and error.errno in _NO_PLACE:
        return "name a folder you may write to with --out"
    if isinstance(error, PermissionError):
        return "change who may read and write there, or copy the folder to a place of your own"
    if error.errno in _NO_ROOM:
        return ELSEWHERE
    return None


def _written(code: int) -> int:
    """Flushes both streams; returns the exit code to end with.

    A closed output turns 0 into 141. Any other failure to write turns the
    code into 2.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or OUTPUT_CLOSED
        _discard(sys.stdout)
    except OSError as error:
        # An error with code 2 has been printed already.
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
    """Discards what a stream still holds: Python flushes once more when it
    ends, and would report the failure in its own words.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
