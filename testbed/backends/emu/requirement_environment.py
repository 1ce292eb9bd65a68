"""Packages that a user's applications require, in an environment in that user's
cache: made by a process of that user's, never by root.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from controller import app_environment
from testbed.errors import BadInput, MachineCannot
from testbed.foreign_text import plain_text
from testbed.owned_files import caller
from testbed.spec.controller_choice import ControllerChoice

CACHE = Path(".cache", "hosenet", "packages")
BY_PYTHON = (
    "or make an environment yourself, and name it by controller.python"
)
# pip's own settings, such as an index of the organisation's.
KEPT = (
    "PIP_",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)

Narrate = Callable[[str], object]


def with_packages(
    choice: ControllerChoice, narrate: Narrate
) -> ControllerChoice:
    """The choice with an interpreter that has the required packages.

    Raises BadInput where they cannot be installed, MachineCannot for root
    without a user who called it, without a network, or without venv.
    """
    if not choice.packages:
        return choice
    requirements = Path(choice.packages)
    python = _made(requirements, _account(), narrate)
    return replace(choice, python=python)


def _account() -> pwd.struct_passwd:
    """The account of the user who called sudo. Raises MachineCannot without."""
    owner = caller()
    if owner is not None and owner.uid > 0:
        with suppress(KeyError):
            return pwd.getpwuid(owner.uid)
    raise MachineCannot(
        "controller.packages are installed as the user who calls sudo, never"
        " as root: nobody has called it",
        f"call it by sudo from an account, {BY_PYTHON}",
    )


def _made(
    requirements: Path,
    account: pwd.struct_passwd,
    narrate: Narrate,
) -> str:
    # Passed as text: the account may have no access to the testbed's files.
    program = Path(app_environment.__file__).read_text("utf-8")
    cache = Path(account.pw_dir) / CACHE
    command = [_interpreter(account), "-I", "-c", program]
    last = ""
    with subprocess.Popen(
        [*command, str(requirements), str(cache)],
        env=_environment(account, os.environ),
        # Root's working directory may be closed to the account.
        cwd="/",
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        # By root's terminal, a package could otherwise type commands into root's
        # shell (TIOCSTI).
        start_new_session=True,
        umask=0o022,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe
        assert process.stderr is not None  # noqa: S101 - a pipe
        # The interpreter's path comes last; a sentence is shown at once, as the
        # next line may come minutes later.
        try:
            for line in process.stdout:
                last = line.rstrip("\n")
                if not last.startswith("/"):
                    narrate(plain_text(last))
            # A few lines only, so the process never waits for room in this
            # pipe.
            complaint = process.stderr.read().strip() or "it was killed"
        except BaseException:
            # A terminal's Ctrl-C does not reach another session.
            os.killpg(process.pid, signal.SIGINT)
            raise
    if process.returncode == 0:
        return last
    message = (
        f"controller.packages: {requirements}: {plain_text(complaint)}"
    )
    if process.returncode == app_environment.EXIT_BAD_FILE:
        raise BadInput(message, f"correct it, {BY_PYTHON}")
    raise MachineCannot(message, f"try again later, {BY_PYTHON}")


def _interpreter(account: pwd.struct_passwd) -> str:
    """An interpreter that a user may start. Raises MachineCannot.

    It has this interpreter's version, which the packages' compiled modules
    need. It is not this interpreter, which may lie in root's home, closed to
    others.
    """
    version = "python{}.{}".format(*sys.version_info)
    names = (
        Path(sys.base_prefix, "bin", version),
        Path("/usr/bin", version),
        Path("/usr/local/bin", version),
    )
    for name in names:
        try:
            subprocess.run(
                [str(name), "-I", "-c", ""],
                cwd="/",
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                start_new_session=True,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return str(name)
    raise MachineCannot(
        f"{account.pw_name} may start no {version}",
        f"install it there, {BY_PYTHON}",
    )


def _environment(
    account: pwd.struct_passwd, environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a user's process, and pip's settings among root's."""
    kept = {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
    }
    for name, value in environ.items():
        if name.startswith(KEPT):
            kept[name] = value
    return kept
