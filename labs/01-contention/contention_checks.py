"""Checks of lab 1: shares of flows on one link and on several, predicted and measured."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

from jobs.python_child import python_command
from testbed.errors import RunFailed
from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of, shown
from testbed.labs.submission import Submission
from testbed.standing.standing_network import StandingNetwork

FILE = "sharing.py"
CLOSE = 1e-6
Paths = list[list[int]]
Flows = tuple[list[int], Paths]

CAPACITY = st.integers(1, 30)
NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


def rates_of(submission: Submission, number: int, function: str, *arguments: object) -> list[float]:
    """A function's value: so many rates, none negative. Raises Wrong, CodeFailed."""
    call, look = as_call(function, *arguments), LOOK[function]
    found = list_of(submission.call(FILE, function, *arguments), (int, float), call, look)
    if len(found) != number:
        raise Wrong(f"{call} returned {len(found)} rates", f"{number}", look)
    rates = [number_of(rate, call, look) for rate in found]
    if min(rates, default=0) < 0:
        raise Wrong(f"{call} returned {shown(found)}", "rates from 0 on", look)
    return rates


LOOK = {
    "shares": "README.md, 'One link'",
    "max_min": "README.md, 'Several links'",
    "tenant_rates": "README.md, 'Several links'",
    "with_guarantees": "README.md, 'With a guarantee'",
    "experiment": "README.md, 'The experiment'",
}


def _same(got: Sequence[float], expected: Sequence[float]) -> bool:
    return all(abs(a - b) <= CLOSE for a, b in zip(got, expected, strict=True))


def _figures(rates: Sequence[float]) -> str:
    return f"[{', '.join(f'{rate:.4g}' for rate in rates)}]"


# -- pure


def one_link_is_shared_by_flow(submission: Submission) -> None:
    def holds(example: tuple[int, list[int]]) -> None:
        capacity, flows = example
        got = rates_of(submission, len(flows), "shares", capacity, flows)
        owners = [tenant for tenant, own in enumerate(flows) for _ in range(own)]
        expected = [0.0] * len(flows)
        for owner in owners:
            expected[owner] += capacity / len(owners)
        if not _same(got, expected):
            call = as_call("shares", capacity, flows)
            raise Wrong(f"{call} returned {_figures(got)}", _figures(expected), LOOK["shares"])

    for_all(st.tuples(CAPACITY, NUMBERS), holds)


@st.composite
def _flows(draw: st.DrawFn) -> Flows:
    capacities = draw(st.lists(CAPACITY, min_size=1, max_size=4))
    link = st.integers(0, len(capacities) - 1)
    path = st.lists(link, min_size=1, max_size=len(capacities), unique=True)
    return capacities, draw(st.lists(path, min_size=1, max_size=6))


def rates_are_max_min_fair(submission: Submission) -> None:
    """Rates are max-min fair if each flow crosses a full link on which nobody has more."""

    def holds(example: Flows) -> None:
        capacities, paths = example
        call = as_call("max_min", *example)
        rates = rates_of(submission, len(paths), "max_min", *example)
        on = [[r for r, path in zip(rates, paths, strict=True) if n in path]
              for n in range(len(capacities))]  # fmt: skip
        for link, (capacity, each) in enumerate(zip(capacities, on, strict=True)):
            if sum(each) > capacity + CLOSE:
                seen = f"{call} returned {_figures(rates)}: link {link} carries {sum(each):.4g}"
                raise Wrong(seen, f"at most its {capacity}", LOOK["max_min"])
        for flow, (rate, path) in enumerate(zip(rates, paths, strict=True)):
            if not any(
                sum(on[n]) >= capacities[n] - CLOSE and rate >= max(on[n]) - CLOSE for n in path
            ):
                seen = f"{call} returned {_figures(rates)}: nothing holds up flow {flow}"
                expected = "a full link on its path, and nobody with more there"
                raise Wrong(seen, expected, LOOK["max_min"])

    for_all(_flows(), holds, number=300)


@st.composite
def _tenants(draw: st.DrawFn) -> tuple[list[int], list[Paths]]:
    capacities, paths = draw(_flows())
    cut = draw(st.integers(0, len(paths)))
    return capacities, [paths[:cut], paths[cut:]]


def tenants_have_their_flows_rates(submission: Submission) -> None:
    """Compared with max_min of all flows, which an earlier check compares with the definition."""

    def holds(example: tuple[list[int], list[Paths]]) -> None:
        capacities, tenants = example
        paths = [path for own in tenants for path in own]
        rates = rates_of(submission, len(paths), "max_min", capacities, paths)
        if paths and not any(rates):
            seen = f"{as_call('max_min', capacities, paths)} returned {_figures(rates)}"
            raise Wrong(seen, "rates that tenants can add up", LOOK["max_min"])
        cut = len(tenants[0])
        expected = [sum(rates[:cut]), sum(rates[cut:])]
        got = rates_of(submission, 2, "tenant_rates", *example)
        if not _same(got, expected):
            seen = f"{as_call('tenant_rates', *example)} returned {_figures(got)}"
            raise Wrong(seen, f"{_figures(expected)}, by your max_min", LOOK["tenant_rates"])

    for_all(_tenants(), holds)


@st.composite
def _guaranteed(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    capacity, flows = draw(CAPACITY), draw(NUMBERS)
    free, guarantees = capacity, []
    for _ in flows:
        guarantees.append(draw(st.integers(0, free)))
        free -= guarantees[-1]
    return capacity, flows, guarantees


def guarantees_come_first(submission: Submission) -> None:

    def holds(example: tuple[int, list[int], list[int]]) -> None:
        capacity, flows, guarantees = example
        got = rates_of(submission, len(flows), "with_guarantees", *example)
        others = [n for n, own in enumerate(flows) if not guarantees[n] for _ in range(own)]
        expected = [float(g if own else 0) for own, g in zip(flows, guarantees, strict=True)]
        left = capacity - sum(expected)
        for tenant in others:
            expected[tenant] += left / len(others)
        if not _same(got, expected):
            seen = f"{as_call('with_guarantees', *example)} returned {_figures(got)}"
            raise Wrong(seen, _figures(expected), LOOK["with_guarantees"])

    for_all(_guaranteed(), holds, number=200)


# -- on the wire


RACK_MBPS, GUARANTEE_MBPS, MANY = 20, 5, 8
AT = {
    "a": ("server 0", "server 4"),
    "b": ("server 1", "server 2", "server 3", "server 5"),
}


@cache
def measuring() -> ModuleType:
    """The lab's own measure.py, whatever the student's folder has."""
    file = Path(__file__).parent / "start" / "measure.py"
    spec = importlib.util.spec_from_file_location("lab_01_measure", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["TESTBED"] = python_command("testbed.cli.main")
    return module


@contextmanager
def tenant(network: StandingNetwork, name: str, mbps: int, enforcement: str) -> Iterator[None]:
    """A tenant with a VM on each of its servers, while the block lasts."""
    at = [word for server in AT[name] for word in ("--at", f"{server}:1")]
    rate = ["--bandwidth", f"{mbps} Mbit/s", "--enforcement", enforcement, "--json"]
    command = python_command("testbed.cli.main", "tenant", "add", name, *rate, *at)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise RunFailed(f"tenant add ended with exit code {done.returncode}: {done.stdout[-300:]}")
    try:
        yield
    finally:
        network.tenants.remove(name)


def _measured(flows: int) -> dict[str, float]:
    """Mbit/s of each flow. Raises RunFailed."""
    try:
        rates: dict[str, float] = measuring().measure(flows)
    except SystemExit as error:
        raise RunFailed(str(error)) from None
    return rates


TOLERANCE = {1: 0.2, 3: 0.3, 8: 0.6}
"""Of a's rate: the more flows compete, the smaller it is, and the more one lost packet counts."""


def many_flows_win(submission: Submission, network: StandingNetwork) -> list[Margin]:
    margins = []
    with tenant(network, "a", 1, "none"), tenant(network, "b", 1, "none"):
        for flows, wide in TOLERANCE.items():
            a, b = _predicted(submission, flows)
            rates = measuring().by_tenant(_measured(flows))
            what = f"a's flow against {flows}"
            margins.append(Margin(what, rates["a"], (1 - wide) * a, (1 + wide) * a, "Mbit/s"))
            both, predicted = sum(rates.values()), a + b
            what = "both tenants have"
            margins.append(Margin(what, both, 0.92 * predicted, 1.08 * predicted, "Mbit/s"))
    return margins


def _predicted(submission: Submission, flows: int) -> tuple[float, float]:
    """The tenants' rates, by the student's model of the network and the student's rule."""
    look, call = LOOK["experiment"], as_call("experiment", flows)
    model = list_of(submission.call(FILE, "experiment", flows), list, call, look)
    if len(model) != 2 or len(json.dumps(model)) > 10_000:
        raise Wrong(f"{call} returned {shown(model)}", "[capacities, tenants]", look)
    a, b = rates_of(submission, 2, "tenant_rates", *model)
    return a, b


def a_guarantee_is_kept(submission: Submission, network: StandingNetwork) -> list[Margin]:
    arguments = RACK_MBPS, [1, MANY], [GUARANTEE_MBPS, 0]
    predicted = rates_of(submission, 2, "with_guarantees", *arguments)
    with tenant(network, "a", GUARANTEE_MBPS, "strict"), tenant(network, "b", 1, "none"):
        rates = _measured(MANY)
    got = rates["a.0-a.1"], rates["b.0-b.3"]
    whats = "the guaranteed flow has", f"the {MANY} others"
    return [
        Margin(what, rate, 0.9 * mbps, 1.1 * mbps, "Mbit/s")
        for what, rate, mbps in zip(whats, got, predicted, strict=True)
    ]


CHECKS = (
    Check("one link is shared by flow", "pure", one_link_is_shared_by_flow),
    Check("rates on several links are max-min fair", "pure", rates_are_max_min_fair, 2),
    Check("a tenant has what its flows have", "pure", tenants_have_their_flows_rates),
    Check("guarantees come first, and the rest is shared by flow", "pure", guarantees_come_first),
    Check("1, 3 and 8 flows against one are as predicted", "wire", many_flows_win, 2),
    Check("a guarantee is kept beside eight flows", "wire", a_guarantee_is_kept),
)
