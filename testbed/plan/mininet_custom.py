"""Experiment files as Mininet topologies: ``mn --custom THIS_FILE --topo
hosenet,EXPERIMENT``.

Mininet executes this file by itself, not as a module, and looks for ``topos``
in it.
"""

from __future__ import annotations

from typing import Any

from testbed.errors import TestbedError
from testbed.plan.network_plan import network_plan
from testbed.spec.experiment_file import load_experiment
from topologies.mininet_topo import mininet_topo


def _hosenet(
    path: str, rate: float | str | None = None, prefix: str = "mn"
) -> Any:
    """The network of an experiment file, at its ``scale.rate`` unless ``rate``
    is given.

    The prefix is not that of a live run: Mininet deletes a bridge before it
    makes one of its name.
    """
    # Mininet gives what is no number as a text.
    if rate is not None and not (
        isinstance(rate, int | float) and rate > 0
    ):
        raise SystemExit(f"rate is a number above 0, not {rate!r}")
    try:
        experiment = load_experiment(str(path))
        return mininet_topo(
            network_plan(
                experiment.datacentre,
                str(prefix),
                rate or experiment.scale.rate,
            )
        )
    except TestbedError as error:
        # At any other exception mn deletes all the machine's bridges and ends
        # others' processes.
        raise SystemExit(f"{error}") from None


topos = {"hosenet": _hosenet}
