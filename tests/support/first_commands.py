"""Commands of somebody who installed the wheel, in an empty folder, with what each must end in.

    python -m tests.support.first_commands WHEEL    install it as anybody would, and call them

That makes a virtual environment in a temporary folder, takes the dependencies from wherever pip is
set up to take them, and calls the commands as nobody, if root called it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOBODY = 65534
TIMEOUT_S = 300
EXPERIMENT = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs, dcloud]
workload:
  kind: jobs
  jobs:
    - {id: first, at: 0 s, vms: 6, bandwidth: 400 Mbit/s, duration: 60 s, deadline: 10 min}
    - {id: second, at: 10 s, vms: 4, bandwidth: 400 Mbit/s, duration: 60 s, deadline: 10 min}
"""
FCFS, DCLOUD = "two-jobs/fcfs", "latest/dcloud"


@dataclass(frozen=True)
class Command:
    """A command: its words (``*``: names that the folder has), its exit code, what it prints."""

    words: str
    code: int = 0
    prints: str = ""


SIMULATED = (
    Command("testbed --version", prints="testbed 0"),
    Command("testbed validate two-jobs.yaml", prints="two-jobs.yaml: ok"),
    Command("testbed plan two-jobs.yaml", prints="class add dev"),
    Command("testbed schema", prints="json-schema.org"),
    Command("testbed simulate two-jobs.yaml", prints="audit: passed"),
    Command(
        f"testbed explain {FCFS} second",
        prints="not enough slots: 4 asked, 2 free",
    ),
    Command(
        f"testbed compare {FCFS} {DCLOUD}",
        prints="second is started at 60.00 s",
    ),
    Command(f"testbed audit {FCFS}", prints="accounts"),
    Command("testbed report runs/*-two-jobs-s1", prints="report.html"),
    Command("testbed data list", prints="sha256"),
    Command("testbed examples", prints="examples/quickstart.yaml"),
    Command(
        "testbed simulate examples/quickstart.yaml", prints="audit: passed"
    ),
    Command("python -c import|testbed"),
)
LABS = (
    Command("testbed lab list", prints="Placement"),
    Command("testbed lab start 3", prints="lab-03-placement"),
    Command("testbed lab check 3", 1, "a link needs min(X, N-X) B"),
    Command("testbed lab hint 3", prints="hint 1 of 3"),
)
FIGURES = (
    Command("testbed reproduce --list", prints="dcloud-fig4"),
    Command("testbed reproduce mbfcbs-fig4 --quick", prints="2 claims"),
)
LIVE = (
    Command(
        "testbed doctor",
        3,
        "in a checkout of Hosenet or in its unpacked hosenet-",
    ),
    Command(
        "testbed run two-jobs.yaml",
        3,
        "needs root and what provision.sh installs",
    ),
    Command(
        "testbed up two-jobs.yaml",
        3,
        "needs root and what provision.sh installs",
    ),
)
GROUPS = (SIMULATED, LABS, FIGURES, LIVE)


def empty_folder(within: Path, *, nobody: bool = False) -> Path:
    """A folder with an experiment file and nothing else, ``nobody``'s where root makes it."""
    # A temporary folder is its maker's alone: another user could not pass.
    within.chmod(0o755)
    (home := within / "home").mkdir()
    (home / "two-jobs.yaml").write_text(EXPERIMENT)
    if nobody:
        os.chown(home, NOBODY, NOBODY)
    return home


def faults(
    commands: Sequence[Command],
    folder: Path,
    programs: Mapping[str, Sequence[str]],
    environment: Mapping[str, str],
    *,
    nobody: bool = False,
) -> Iterator[tuple[str, str | None]]:
    """Calls the commands in the folder; each as typed, with what is wrong with how it ended.

    ``programs``: the beginning of a command line in place of its first word.
    """
    # Without extra_groups the process would stay in root's groups.
    user: dict[str, Any] = (
        {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        if nobody
        else {}
    )
    for command in commands:
        name, *words = _words(command, folder)
        ended = subprocess.run(
            [*programs[name], *words], cwd=folder, env=environment, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            **user,
        )  # fmt: skip
        yield (
            " ".join([name, *words]),
            _fault(command, ended.returncode, ended.stdout),
        )


def _words(command: Command, folder: Path) -> list[str]:
    words = []
    for word in command.words.split():
        matches = sorted(folder.glob(word)) if "*" in word else []
        words += [str(path.relative_to(folder)) for path in matches] or [
            word.replace("|", " ")
        ]
    return words


def _fault(command: Command, code: int, printed: str) -> str | None:
    if "Traceback" in printed:
        return f"it ended in a traceback:\n{printed}"
    if code != command.code:
        return f"exit code {code}, expected {command.code}:\n{printed}"
    if command.prints not in printed:
        return f"it does not print {command.prints!r}:\n{printed}"
    return None


def install(wheel: Path, folder: Path) -> Path:
    """Installs the wheel and its dependencies into a new environment; its folder of programs."""
    subprocess.run(
        [sys.executable, "-m", "venv", folder],
        check=True,
        timeout=TIMEOUT_S,
    )
    pip = [
        str(folder / "bin/python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
    ]
    subprocess.run(
        [*pip, "install", "--quiet", wheel], check=True, timeout=900
    )
    return folder / "bin"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.first_commands"
    )
    parser.add_argument("wheel", type=Path)
    options = parser.parse_args()
    nobody, wrong = os.geteuid() == 0, 0
    with tempfile.TemporaryDirectory() as name:
        bin_folder = install(options.wheel, Path(name) / "venv")
        home = empty_folder(Path(name), nobody=nobody)
        environment = {
            "HOME": str(home),
            "PATH": f"{bin_folder}:/usr/sbin:/usr/bin:/sbin:/bin",
        }
        programs = {
            word: [str(bin_folder / word)] for word in ("testbed", "python")
        }
        for group in GROUPS:
            for typed, fault in faults(
                group, home, programs, environment, nobody=nobody
            ):
                print(
                    f"{'ok   ' if fault is None else 'WRONG'} {typed}",
                    flush=True,
                )
                wrong += fault is not None
                if fault is not None:
                    print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
