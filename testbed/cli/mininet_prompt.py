"""``testbed mininet``: Mininet's prompt on the network that is up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.options import require_root
from testbed.errors import MachineCannot, install_hint

if TYPE_CHECKING:
    from testbed.standing.attached_mininet import StandingMininet


def mininet() -> None:
    """Open Mininet's prompt on the network that is up, as root: nodes, pingall,
    a.0 ping a.1, …

    Where standard input is no terminal its lines are the commands. What is
    refused is printed, and the next command follows. The network stays as it
    is.
    """
    require_root("testbed mininet")
    try:
        from mininet.log import lg

        from testbed.standing.attached_mininet import StandingMininet
    except ModuleNotFoundError as error:
        if error.name != "mininet":
            raise
        why = "testbed mininet needs Mininet, which is not installed"
        raise MachineCannot(why, install_hint()) from None
    # Mininet prints everything on standard error.
    for handler in lg.handlers:
        handler.setStream(sys.stdout)
    net = StandingMininet()
    try:
        if os.isatty(0):
            net.interact()
        else:
            _run_lines(net)
    finally:
        net.close()


def _run_lines(net: StandingMininet) -> None:
    """Runs the lines of standard input as commands."""
    from testbed.standing.attached_mininet import Script

    with (
        os.fdopen(os.dup(0), errors="replace") as lines,
        Path(os.devnull).open() as nothing,
    ):
        # Programs that `sh` starts leave the lines alone.
        os.dup2(nothing.fileno(), 0)
        Script(net, lines)
