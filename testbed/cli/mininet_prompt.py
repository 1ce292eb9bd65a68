"""``testbed mininet``: Mininet's prompt on the network that is up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from testbed.cli.options import require_root
from testbed.errors import MachineCannot, install_hint


def mininet() -> None:
    """Open Mininet's prompt on the network that is up, as root: nodes, pingall,
    a.0 ping a.1, …

    Where standard input is no terminal its lines are the commands. What is
    refused is said, and the next command follows. The network stays as it is.
    """
    require_root("testbed mininet")
    try:
        from mininet.log import lg

        from testbed.standing.attached_mininet import (
            Script,
            StandingMininet,
        )
    except ModuleNotFoundError as error:
        if error.name != "mininet":
            raise
        why = "testbed mininet needs Mininet, which is not installed"
        raise MachineCannot(why, install_hint()) from None
    for handler in lg.handlers:
        handler.setStream(
            sys.stdout
        )  # Mininet prints everything on standard error
    net = StandingMininet()
    try:
        if os.isatty(0):
            net.interact()
            return
        with (
            os.fdopen(os.dup(0), errors="replace") as lines,
            Path(os.devnull).open() as nothing,
        ):
            os.dup2(
                nothing.fileno(), 0
            )  # programs that `sh` starts leave the lines alone
            Script(net, lines)
    finally:
        net.close()
