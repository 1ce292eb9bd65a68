"""Pages of the site that come from the code: one a verb, and the Python interface.

    python -m tests.support.site_pages FOLDER

Sphinx calls it before it reads ``docs`` (``docs/conf.py``); the manual pages are
the same pages, written by its other builder.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import testbed
from testbed.cli.command_line import VERBS, application

COMMANDS = "commands"
INTERFACE = "interface"
MARKED = re.compile(r"(`[^`]*`)|([\\*_<>\[\]|])")
EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | good |
| 1 | a broken reservation, or a result outside its stated band |
| 2 | bad file or usage |
| 3 | this machine cannot do it; the message says what is missing |
| 4 | the run failed |
| 130 | interrupted, and cleaned up |
"""


def write_pages(folder: Path) -> list[Path]:
    """Writes all pages into the folder of ``docs``; files that say the same
    already stay as they are.
    """
    pages = {f"{INTERFACE}.md": interface_page()}
    pages[f"{COMMANDS}/index.md"] = index_page()
    for verb in VERBS:
        pages[f"{COMMANDS}/{verb}.md"] = verb_page(verb)
    written = []
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads a file again whose time has changed.
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


# -- verbs


def index_page() -> str:
    """All verbs with their line of ``testbed --help``."""
    lines = [
        "# Commands",
        "",
        "`testbed VERB --help` prints the same; so does `man`, after `make man`.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    for verb, summary in VERBS.items():
        lines.append(
            f"| [testbed {verb}]({verb}.md) | {_escaped(summary)} |"
        )
    lines += ["", "## Exit codes", "", EXIT_CODES]
    lines += ["```{toctree}", ":hidden:", "", *VERBS, "```", ""]
    return "\n".join(lines)


def verb_page(verb: str) -> str:
    """A verb, or all verbs below it, with their arguments and options."""
    command = application([verb]).commands[verb]  # type: ignore[attr-defined]
    lines = [f"# testbed {verb}", ""]
    below = getattr(command, "commands", None)
    if below is None:
        lines += _described(command, f"testbed {verb}", "##")
    else:
        lines += [_escaped(VERBS[verb]), ""]
        for name, part in below.items():
            lines += [f"## testbed {verb} {name}", ""]
            lines += _described(part, f"testbed {verb} {name}", "###")
    return "\n".join(lines)


def _described(command: Any, name: str, level: str) -> Iterator[str]:
    # Without arguments, which click calls an error otherwise.
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = []
    options = []
    usage = [name]
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            metavar = parameter.metavar or parameter.name.upper()
            arguments.append((metavar, parameter.help))
            usage.append(_in_usage(metavar, required=parameter.required))
        else:
            options.append(parameter.get_help_record(context))
    if options:
        usage.insert(1, "[OPTIONS]")
    yield from [_paragraphs(command.help), ""]
    yield from ["```text", " ".join(usage), "```", ""]
    for title, entries in (("Arguments", arguments), ("Options", options)):
        if entries:
            yield from [f"{level} {title}", ""]
            for term, text in entries:
                yield from [f"`{term}`", f": {_escaped(text)}", ""]


def _in_usage(metavar: str, *, required: bool) -> str:
    if required or metavar.startswith("["):
        return metavar
    return f"[{metavar}]"


def _paragraphs(text: str) -> str:
    return "\n\n".join(map(_escaped, text.split("\n\n")))


def _escaped(text: str) -> str:
    """Help as Markdown: code stays code, and nothing else has a meaning."""
    return MARKED.sub(
        lambda match: match[1] or f"\\{match[2]}", " ".join(text.split())
    )


# -- the Python interface


def interface_page() -> str:
    """The public names of ``import testbed``, by autodoc's directives."""
    lines = [
        "# Python interface",
        "",
        "All that `import testbed` has; [examples](python.md) beside it.",
        "",
    ]
    for name in testbed.__all__:
        if name.startswith("__"):
            continue
        kind = "class"
        value = getattr(testbed, name)
        if inspect.isfunction(value):
            kind = "function"
        elif issubclass(value, Exception):
            kind = "exception"
        lines += [
            f"## {name}",
            "",
            "```{eval-rst}",
            f".. auto{kind}:: testbed.{name}",
        ]
        if kind != "function":
            lines.append("   :members:")
        lines += ["```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    for page in write_pages(Path(sys.argv[1])):
        print(page)
