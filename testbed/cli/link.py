"""``testbed link show``, ``down`` and ``up``: the cables of the network that is
up.
"""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.errors import BadInput
from testbed.standing.keeper_protocol import (
    SetCapacity,
    SetLink,
    ShowLinks,
    Way,
    ask,
)
from testbed.standing.network_state import LinkState
from testbed.units import (
    UnitError,
    human_bandwidth,
    human_capacity,
    human_share,
    parse_bandwidth,
)

link = typer.Typer(no_args_is_help=True)

ENDS = "Both ends, as 'rack 1' 'core 0', or the link's name; of a VM's cable the VM is enough."
Ends = Annotated[list[str], typer.Argument(metavar="A [B]", help=ENDS)]

LINK_SET = "testbed link set 'rack 0' 'core 0' '50 Mbit/s'"
EndsAndRate = Annotated[
    list[str],
    typer.Argument(
        metavar="A [B] RATE", help=f"{ENDS} RATE in the file's units."
    ),
]
OnlyUp = Annotated[
    bool,
    typer.Option("--up", help="Only from the lower end, toward the root."),
]
OnlyDown = Annotated[
    bool,
    typer.Option("--down", help="Only toward the lower end."),
]


@link.command()
def show(as_json: Json = False) -> None:
    """List the links, and those of VMs' cables that are down (with --json all
    of them).
    """
    require_root("testbed link show")
    states = ask(ShowLinks(), tuple[LinkState, ...])
    if as_json:
        console.print_json(states)
        return
    table = Table(
        "link", "state", "capacity", "reserved", "share", "tenants"
    )
    for state in states:
        # A VM's cable has no capacity: while it is up, a row would say nothing.
        if state.up and not state.capacity_bps:
            continue
        status = Text("up") if state.up else Text("DOWN", "bold red")
        table.add_row(
            Text(state.name),
            status,
            *_rates(state),
            Text(" ".join(state.tenants)),
        )
    console.out().print(table)
    # Once each: several links may cut the same tenant.
    sentences = [text for state in states for text in state.broken]
    for text in dict.fromkeys(sentences):
        console.print_text(text)


def _rates(state: LinkState) -> tuple[str, str, str]:
    """Texts of the capacity, what is reserved, and the share of the capacity."""
    if not state.capacity_bps:
        return "–", "–", "–"
    # A reservation is the same in both directions, and the narrower one limits
    # it.
    narrower_bps = min(state.capacity_bps, state.capacity_down_bps)
    return (
        human_capacity(state.capacity_bps, state.capacity_down_bps),
        human_bandwidth(state.reserved_bps),
        human_share(state.reserved_bps / narrower_bps),
    )


@link.command()
def down(ends: Ends, as_json: Json = False) -> None:
    """Take a link down in both directions; say who moves to another root, and
    who is cut.
    """
    _change(ends, up=False, as_json=as_json)


@link.command()
def up(ends: Ends, as_json: Json = False) -> None:
    """Bring a link back, with its limits; say who has its links back."""
    _change(ends, up=True, as_json=as_json)


@link.command("set")
def set_(
    ends_and_rate: EndsAndRate,
    only_up: OnlyUp = False,
    only_down: OnlyDown = False,
    as_json: Json = False,
) -> None:
    """Change a link's capacity, in both directions unless --up or --down says
    one. Exit code 1, and nothing has changed, below what is reserved on it.
    """
    require_root("testbed link set")
    ends, capacity_bps = _ends_and_rate(ends_and_rate)
    way: Way = "both"
    if only_up != only_down:
        way = "up" if only_up else "down"
    state = ask(SetCapacity(tuple(ends), capacity_bps, way), LinkState)
    carries = human_capacity(state.capacity_bps, state.capacity_down_bps)
    console.print_result(
        state,
        f"link {state.name} carries {carries},"
        f" of which {human_bandwidth(state.reserved_bps)} are reserved",
        as_json=as_json,
    )


def _ends_and_rate(words: list[str]) -> tuple[list[str], int]:
    """The ends, and the rate in bit/s. Raises BadInput.

    The rate is the last word, ``50Mbit/s``, or the last two, ``50 Mbit/s``.
    """
    n_rate_words = 1
    # In `50 Mbit/s` the unit is a word of its own. In `7 50Mbit/s` it is not,
    # and the 7 is the name of an end.
    begins_with_digit = [word[:1].isdecimal() for word in words[-2:]]
    if begins_with_digit == [True, False]:
        n_rate_words = 2
    ends = words[:-n_rate_words]
    try:
        capacity_bps = parse_bandwidth(" ".join(words[-n_rate_words:]))
    except UnitError as error:
        raise BadInput(str(error), LINK_SET) from None
    if not ends or capacity_bps == 0:
        raise BadInput(
            "a link set has a link and a capacity above 0", LINK_SET
        )
    return ends, capacity_bps


def _change(ends: list[str], *, up: bool, as_json: bool) -> None:
    require_root(f"testbed link {'up' if up else 'down'}")
    state = ask(SetLink(tuple(ends), up), LinkState)
    if as_json:
        console.print_json(state)
        return
    console.print_text(
        f"link {state.name} is {'up' if state.up else 'down'}"
    )
    for text in (*state.moved, *state.broken):
        console.print_text(text)
    if not state.up and not state.broken:
        console.print_text("no tenant's VMs are cut")
    if state.broken:
        back = shlex.join(state.ends)
        console.say(f"its way back: sudo testbed link up {back}")
