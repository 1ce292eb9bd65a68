"""``testbed switch show`` and ``restart``: the parts of the switch, which are the
Open vSwitches under the network that is up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.standing.keeper_protocol import (
    RestartSwitch,
    ShowSwitches,
    ask,
)
from testbed.standing.network_state import SwitchState
from testbed.units import number_of

switch = typer.Typer(no_args_is_help=True)

WHICH = "A part; or a switch or server in it, such as 'core 0'; or all."
Which = Annotated[
    str, typer.Argument(metavar="PART|SWITCH|all", help=WHICH)
]


@switch.command()
def show(as_json: Json = False) -> None:
    """List the parts of the switch, with the bridges in each."""
    require_root("testbed switch show")
    states = ask(ShowSwitches(), tuple[SwitchState, ...])
    if as_json:
        console.print_json(states)
        return
    table = Table("part", "process", "since", "bridges")
    for state in states:
        pid = Text("ENDED", "bold red")
        since = ""
        if state.pid is not None:
            pid = Text(str(state.pid))
            start = datetime.fromtimestamp(state.since_unix_s, UTC)
            since = f"{start.astimezone():%H:%M:%S}"
        table.add_row(
            state.name, pid, since, Text(", ".join(state.bridges))
        )
    console.out().print(table)


@switch.command()
def restart(part: Which = "all", as_json: Json = False) -> None:
    """End a part's ovs-vswitchd (SIGKILL) and start it; its flows and limits
    are as before.

    Exit code 3 if it is the machine's own and has bridges of other programs.
    """
    require_root("testbed switch restart")
    states = ask(RestartSwitch(part), tuple[SwitchState, ...])
    if as_json:
        console.print_json(states)
        return
    for state in states:
        n_bridges = len(state.bridges)
        bridges = number_of(n_bridges, "bridge is", "bridges are")
        console.print_text(f"{state.name}: {state.done}, {bridges} back")
