"""``testbed measure``: a tenant's bandwidth among its VMs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from jobs.request import Enforcement
from testbed.cli import console
from testbed.cli.options import Json
from testbed.cli.standing import Name, shown_tenant
from testbed.standing import vm_measurement
from testbed.units import human_bandwidth, human_share

Seconds = Annotated[
    int, typer.Option(min=1, max=600, help="How long iperf3 measures.")
]


def measure(
    name: Name, seconds: Seconds = 5, as_json: Json = False
) -> None:
    """Measure a tenant's bandwidth and round trips among its VMs, against its
    reservation.

    Exit code 1 where a VM's bandwidth is not within 1 % of what is reserved
    (below it, where bandwidth is lent; any will do where none is reserved), or
    pings are lost.
    """
    tenant = shown_tenant(name, "measure")
    with console.counted(
        f"measuring {name}", vm_measurement.expected_s(seconds)
    ) as advance:
        pairs = vm_measurement.measure(tenant, seconds, advance)
    if as_json:
        records = [asdict(pair) | {"good": pair.good} for pair in pairs]
        console.print_json(
            {"tenant": name, "seconds": seconds, "pairs": records}
        )
    else:
        console.out().print(_table(name, pairs))
    if not all(pair.good for pair in pairs):
        raise typer.Exit(1)


UNRESERVED = (
    "; all send and receive at once: of a link with two capacities the faster "
    "direction measures low, since its acknowledgements wait behind the "
    "slower's data (iperf in testbed mininet measures one at a time)"
)
CONDITIONS: dict[Enforcement, str] = {
    "strict": "within 1 %, and ",
    "work-conserving": "99 % or more, and ",
    "none": "",
}
"""The condition on a bandwidth that is ok, as the table's caption begins it."""


def _table(name: str, pairs: list[vm_measurement.PairMeasurement]) -> Table:
    table = Table(
        "from",
        "to",
        "reserved",
        "measured",
        "ratio",
        "round trip",
        "lost",
        "verdict",
        title=f"tenant {name}, all VMs at once",
    )
    # The same for all pairs of a tenant.
    enforcement = pairs[0].enforcement
    condition = CONDITIONS[enforcement]
    table.caption = (
        f"bits of frames, in the file's units; ok: {condition}no ping lost"
    )
    if enforcement == "none":
        table.caption += UNRESERVED
    for pair in pairs:
        reserved = "–"
        if pair.reserved_bps:
            reserved = human_bandwidth(pair.reserved_bps)
        rtt = "–"
        if pair.rtt_ms is not None:
            rtt = f"{pair.rtt_ms:.2f} ms"
        verdict = Text("OUTSIDE", "bold red")
        if pair.good:
            verdict = Text("ok", "green")
        table.add_row(
            pair.sender,
            pair.receiver,
            reserved,
            human_bandwidth(pair.measured_bps),
            f"{pair.ratio:.4f}",
            rtt,
            human_share(pair.lost_share),
            verdict,
        )
    return table
