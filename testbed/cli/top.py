"""``testbed top [RUN|latest]``: the traffic of links and tenants of the network
that is up, or a run's jobs and links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.name_completion import run_names
from testbed.cli.options import Json, require_root, run_path
from testbed.standing.network_state import NetworkState
from testbed.standing.traffic_rates import (
    TrafficRates,
    TrafficSample,
    samples,
)
from testbed.units import human_bandwidth

Followed = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN|latest]",
        autocompletion=run_names,
        help="A run by folder, name or latest; else the network that is up.",
    ),
]
Once = Annotated[
    bool,
    typer.Option("--once", help="One sample over a second, and no more."),
]
# Lines of the screen that are not links: titles, headings, blanks.
AROUND = 10


def top(
    run: Followed = None, once: Once = False, as_json: Json = False
) -> None:
    """Show what links and tenants of the network that is up reserve, send, queue
    and drop, each second, until Ctrl-C.

    Of a RUN its jobs and the links that are fullest, until it ends; that needs
    no root. Without a terminal, on a dumb one, or with --json: once, of the
    network a sample over a second.
    """
    if run is not None:
        from testbed.cli.run_traffic import show_run

        show_run(run_path(run), once=once, as_json=as_json)
        return
    require_root("testbed top")
    out = console.out()
    # Closing it closes its sockets in all namespaces.
    with closing(samples()) as taken:
        # A dumb terminal cannot be written over.
        redrawn = out.is_terminal and not out.is_dumb_terminal
        if redrawn and not once and not as_json:
            _redraw(taken)
            return
        state, sample = next(taken)
        if as_json:
            console.print_json(
                {"scale_rate": state.scale_rate, **asdict(sample)}
            )
        else:
            out.print(_shown(state, sample, len(sample.links)))


def _redraw(taken: Iterable[tuple[NetworkState, TrafficSample]]) -> None:
    out = console.out()
    with (
        suppress(KeyboardInterrupt),
        Live(console=out, screen=True, auto_refresh=False) as live,
    ):
        for state, sample in taken:
            # Anew each time: a window may change its size.
            rows = max(1, out.height - AROUND - len(sample.tenants))
            live.update(_shown(state, sample, rows), refresh=True)


def _shown(state: NetworkState, sample: TrafficSample, most: int) -> Group:
    """A sample as lines: all tenants, and the ``most`` fullest links with traffic
    or reservations.
    """
    title = f"{state.name}: {sample.interval_s:.1f} s, rates in the file's units"
    parts: list[RenderableType] = [Text(title)]
    if state.trouble:
        parts.append(Text(f"trouble: {state.trouble}", "bold red"))
    parts.append(_table("tenant", sample.tenants))
    used = [
        link for link in sample.links if link.reserved_bps or link.sent_bps
    ]
    links = sorted(used, key=_fullest_first)[:most]
    parts.append(_table("link", links))
    left = len(sample.links) - len(links)
    if left:
        rest = f"and {left} directions of links, idle or less loaded"
        parts.append(Text(rest, "dim"))
    return Group(*parts)


def _fullest_first(link: TrafficRates) -> tuple[float, float]:
    """Sort key: the share that is sent, then the share that is reserved."""
    return (
        -link.sent_bps / link.capacity_bps,
        -link.reserved_bps / link.capacity_bps,
    )


def _table(heading: str, rows: Sequence[TrafficRates]) -> Table:
    of_links = heading == "link"
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for column in ("capacity", "reserved", "sent", "queued", "dropped"):
        if column != "capacity" or of_links:
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, of_links=of_links))
    return table


def _cells(row: TrafficRates, *, of_links: bool) -> list[Text]:
    cells = [row.name]
    if of_links:
        cells.append(human_bandwidth(row.capacity_bps))
    cells.append(
        human_bandwidth(row.reserved_bps) if row.reserved_bps else "–"
    )
    cells.append(human_bandwidth(row.sent_bps))
    cells.append(f"{row.queued_bytes / 1000:.0f} kB")
    # A tenant's drops are also those at its VMs' own limits: no fault.
    style = "bold red" if row.dropped and of_links else ""
    return [*map(Text, cells), Text(str(row.dropped), style)]
