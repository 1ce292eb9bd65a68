"""Embedders of installed packages: what they do or answer wrongly ends a run in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

from testbed.embedding.check import check_placement
from testbed.embedding.placement import Placement, Refusal, Residual
from testbed.errors import RunFailed
from testbed.plugins import Installed, PluginError, raised_anywhere, shown
from testbed.units import format_bandwidth
from topologies.datacentre import DataCentre, IntArray

if TYPE_CHECKING:
    from testbed.embedding.base import Embedder

HINT = "an embedder answers from its arguments alone; it may read files when it is made"
_METHOD = "embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0)"


class EmbedderFailed(RunFailed):
    """An embedder that is not ours is at fault, and not the policy that asks it."""


def installed_embedder(plugin: Installed) -> Embedder:
    """The embedder of an installed package. Raises PluginError where it is none."""
    loaded = plugin.load()
    made = loaded.found
    if isinstance(made, type):
        try:
            made = made()
        except Exception as error:
            raise PluginError(f"{loaded.source} {raised_anywhere(error)}") from error
    if not callable(getattr(made, "embed", None)):
        raise PluginError(f"{loaded.source} is no embedder: it has no method {_METHOD}")
    return CheckedEmbedder(plugin.name, made, plugin.entries[0].module)


class CheckedEmbedder:
    """An embedder that is not ours, of a module, by its entry point's name; ``ask`` calls it."""

    def __init__(self, name: str, own: Embedder, module: str) -> None:
        self.name, self.module, self._own = name, module, own
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
        """Its answer; RunFailed where that is neither a placement that fits nor a refusal."""
        free, found, hint = _read_only(residual), None, None
        embed = partial(self._own.embed, largest_bps=largest_bps)
        try:
            found = self.ask(embed, datacentre, free, n_vms, rate_bps)
            wrong = _wrong(datacentre, free, found, n_vms, rate_bps)
        except RunFailed as error:
            wrong, hint = error.message, error.hint and HINT
        except Exception as error:  # noqa: BLE001 - somebody's code raises what it likes
            wrong = raised_anywhere(error)
        if wrong is None and found is not None:
            return found
        asked = f"{n_vms} VMs at {format_bandwidth(rate_bps)}"
        raise EmbedderFailed(f"embedder {self.name}, asked to place {asked}, {wrong}", hint)


def _wrong(
    datacentre: DataCentre, free: Residual, found: Any, n_vms: int, rate_bps: int
) -> str | None:
    """The objection to an answer; None where there is none."""
    if isinstance(found, Refusal):
        return None if type(found.reason) is str else f"refuses for {shown(found.reason)}"
    if not isinstance(found, Placement):
        return f"answers {shown(found)}, which is neither a Placement nor a Refusal"
    problems = check_placement(datacentre, free, found, n_vms, rate_bps)
    return f"answers {shown(tuple(found))}, which does not fit: {problems[0]}" if problems else None


def _read_only(residual: Residual) -> Residual:
    """Views that nobody can write to: the arrays are the run's own."""
    memory = residual.free_memory_mib
    return Residual(
        _locked(residual.free_slots),
        _locked(residual.free_bps),
        None if memory is None else _locked(memory),
    )


def _locked(values: IntArray) -> IntArray:
    view = values.view()
    view.setflags(write=False)
    return view
