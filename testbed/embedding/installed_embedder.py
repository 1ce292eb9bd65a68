"""Embedders of files and installed packages: a wrong answer ends a run in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import call, index
from typing import Any

from testbed.embedding.check import check_placement
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    Residual,
)
from testbed.errors import RunFailed
from testbed.plugin_source import check_source
from testbed.plugins import (
    Loaded,
    PluginError,
    raised_anywhere,
    shown_value,
)
from testbed.units import format_bandwidth
from topologies.datacentre import DataCentre

_METHOD = (
    "embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0)"
)


class EmbedderFailed(RunFailed):
    """An embedder that is not ours is at fault, and not the policy that asks
    it.
    """


def checked_embedder(name: str, loaded: Loaded) -> CheckedEmbedder:
    """The embedder of that name that was loaded. Raises PluginError where it is
    none.
    """
    check_source(loaded)
    made = loaded.value
    if isinstance(made, type):
        try:
            made = made()
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{loaded.source} {raised_anywhere(error)}"
            ) from error
    if not callable(getattr(made, "embed", None)):
        raise PluginError(
            f"{loaded.source} is no embedder: it has no method {_METHOD}"
        )
    return CheckedEmbedder(name, made)


class CheckedEmbedder:
    """An embedder that is not ours, by its entry point's name or its file's.

    ``ask`` calls it, and may bound its time.
    """

    def __init__(self, name: str, embedder: Embedder) -> None:
        self.name = name
        self._embedder = embedder
        self.ask: Callable[..., Placement | Refusal] = call

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,
    ) -> Placement | Refusal:
        """Its answer; RunFailed where that is neither a placement that fits nor
        a refusal.
        """
        free = _read_only(residual)
        embed = partial(self._embedder.embed, largest_bps=largest_bps)
        answer: Any = None
        try:
            answer = self.ask(embed, datacentre, free, n_vms, rate_bps)
            if isinstance(answer, Placement):
                answer = _plain(answer)
            fault = _fault(
                datacentre, free, answer, n_vms=n_vms, rate_bps=rate_bps
            )
        except RunFailed as error:
            fault = error.message
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody's code raises what it likes
            fault = raised_anywhere(error)
        if fault is None:
            sound: Placement | Refusal = answer
            return sound
        asked = f"{n_vms} VMs at {format_bandwidth(rate_bps)}"
        raise EmbedderFailed(
            f"embedder {self.name}, asked to place {asked}, {fault}"
        )


def _plain(answer: Placement) -> Placement:
    """A placement with whole numbers in tuples, in place of numpy's or an
    iterator's. Raises TypeError for others.
    """
    vms_on = [(index(server), index(n)) for server, n in answer.vms_on]
    processes = tuple(map(index, answer.processes))
    return Placement(index(answer.root), tuple(vms_on), processes)


def _fault(
    datacentre: DataCentre,
    free: Residual,
    answer: Any,
    *,
    n_vms: int,
    rate_bps: int,
) -> str | None:
    """The objection to an answer; None where there is none."""
    if isinstance(answer, Refusal):
        # The reason may be put together by the embedder's own code, which
        # runs only now.
        if type(answer.reason) is str:
            return None
        return f"refuses for {shown_value(answer.reason)}"
    if not isinstance(answer, Placement):
        return f"answers {shown_value(answer)}, which is neither a Placement nor a Refusal"
    problems = check_placement(
        datacentre, free, answer, n_vms=n_vms, rate_bps=rate_bps
    )
    if problems:
        return f"answers {shown_value(tuple(answer))}, which does not fit: {problems[0]}"
    return None


def _read_only(residual: Residual) -> Residual:
    """Views that nobody can write to: the arrays are the run's own."""
    slots = residual.free_slots.view()
    bps = residual.free_bps.view()
    slots.flags.writeable = False
    bps.flags.writeable = False
    memory = residual.free_memory_mib
    if memory is not None:
        memory = memory.view()
        memory.flags.writeable = False
    return Residual(slots, bps, memory)
