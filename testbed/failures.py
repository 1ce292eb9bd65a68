"""Failures that an experiment brings about: links, servers, switches, the
controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

FailureKind: TypeAlias = Literal[
    "link_failed",
    "link_restored",
    "server_failed",
    "server_restored",
    "switch_restarted",
    "controller_killed",
]

OnFailure: TypeAlias = Literal["wait", "kill", "requeue"]
"""Fate of a running job whose VMs no longer reach each other, and that no other
root has room for: it *waits* where it is for the link; it is *killed*, and its
reservation is free; or its reservation is free and it starts anew when it fits
(*requeue*). One whose server is lost cannot wait: it is killed, or starts anew.
"""

ON_FAILURE: tuple[OnFailure, ...] = get_args(OnFailure)


@dataclass(frozen=True)
class Failure:
    """A failure, or its end, at an instant of the experiment.

    ``part``: a link's number, a server's or a switch's node; 0 for the
    controller.
    """

    at_s: float
    kind: FailureKind
    part: int = 0
