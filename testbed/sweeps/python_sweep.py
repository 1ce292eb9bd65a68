"""Sweeps from Python: ``sweep(file, over={"workload.load": [0.2, 0.4], "seed":
range(1, 21)})``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.spec.document import Place, Problem, SpecErrors, read_text
from testbed.spec.given_values import path_argument, plain_value, yaml_of
from testbed.spec.sweep_section import (
    LEAST,
    MOST_LEAST,
    SweptKey,
    read_option,
)
from testbed.sweeps.intervals import Stop
from testbed.sweeps.result_store import Report
from testbed.sweeps.sweep_folder import Sweep, SweepOptions, run_sweep
from testbed.sweeps.sweep_plan import PlanOptions, plan_sweep

UNNAMED = Path("experiment.yaml")
"""The file's name in messages and keys where the experiment is a mapping."""


def sweep(
    experiment: Path | str | Mapping[str, Any],
    over: Mapping[str, Any] | None = None,
    *,
    stop: float | None = None,
    stop_metric: str = "",
    least: int | None = None,
    metrics: Sequence[str] = (),
    live: bool = False,
    processes: int | None = None,
    cluster: str | None = None,
    out: Path | str | None = None,
    again: bool = False,
    progress: Report | None = None,
    say: Callable[[str], None] = print,
) -> Sweep:
    """Runs an experiment, a file or a mapping, at all combinations of values.

    ``over``: values by key, as lists, ranges or texts such as ``1..20``; they
    replace those of the file. ``stop``: seeds are enough where the half width
    of the 95 % interval of ``stop_metric``, or of each of the ``metrics``, is
    at most this share of the mean; at least ``least`` of them run (3). Raises
    BadInput before anything runs; failed cells are rows. Results are kept below
    ``out`` (``runs``), so that an interrupted sweep continues. ``progress`` is
    called with a :class:`SweepProgress` as cells are done.
    """
    _check_types(over, metrics, processes, cluster, progress)
    path, text = _source(experiment)
    rule = _rule(stop, stop_metric, least)
    keys = [_key(name, values) for name, values in (over or {}).items()]
    asked = PlanOptions(tuple(keys), rule, tuple(metrics), live, least)
    plan = plan_sweep(path, text, asked)
    options = SweepOptions(
        out=_out(out),
        processes=processes or len(os.sched_getaffinity(0)),
        cluster=cluster,
        again=again,
        command=("testbed.sweep",),
        as_root="start Python by sudo",
    )
    return run_sweep(plan, options, progress or (lambda _: None), say)


def _check_types(
    over: object,
    metrics: object,
    processes: object,
    cluster: object,
    progress: object,
) -> None:
    """Raises BadInput for arguments that are of no use."""
    if over is not None and not isinstance(over, Mapping):
        raise BadInput(
            f"over={over!r} is no mapping",
            'write over={"seed": range(1, 4)}, or a text as over={"seed": "1..3"}',
        )
    if over is not None and not all(isinstance(name, str) for name in over):
        raise BadInput(f"over={over!r}: a key is a text such as 'seed'")
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise BadInput(
            f"metrics={metrics!r} is no list of names",
            'write metrics=["wait_mean_s"]',
        )
    is_count = type(processes) is int and processes >= 1
    if processes is not None and not is_count:
        raise BadInput(
            f"processes={processes!r} is no number of processes",
            "give a whole number from 1",
        )
    if cluster is not None and not isinstance(cluster, str):
        raise BadInput(
            f"cluster={cluster!r} is no text",
            'write cluster="tcp://HOST:PORT"',
        )
    if progress is not None and not callable(progress):
        raise BadInput(
            f"progress={progress!r} is no function",
            "give one that is called with a SweepProgress as cells are done",
        )


def _rule(
    share: float | None, metric: str, least: int | None
) -> Stop | None:
    """The rule that replaces the file's; None where the file's stays. Raises
    BadInput.
    """
    if share is None:
        if metric or least is not None:
            raise BadInput(
                "least and stop_metric are parts of a rule, and stop is missing",
                "give stop=0.05 too, or change the file's sweep.stop",
            )
        return None
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise BadInput(
            f"stop={share!r} is no share of the mean",
            "write 5 % as stop=0.05",
        )
    is_count = type(least) is int and 2 <= least <= MOST_LEAST
    if least is not None and not is_count:
        raise BadInput(
            f"least={least!r} is no number of seeds from 2 to {MOST_LEAST:,}"
        )
    return Stop(share, metric, least or LEAST)


def _source(experiment: Path | str | Mapping[str, Any]) -> tuple[Path, str]:
    if isinstance(experiment, Mapping):
        text, problems = yaml_of(experiment, str(UNNAMED))
        if problems:
            raise SpecErrors(problems)
        return UNNAMED, text
    path = path_argument(experiment, "sweep takes a path or a dictionary")
    return path, read_text(path)


def _out(out: Path | str | None) -> Path:
    """The folder of a sweep, or the default. Raises BadInput."""
    if out is None:
        return SweepOptions.out
    return path_argument(out, "out is a path")


def _key(name: str, values: Any) -> SweptKey:
    """A key with its values. Raises BadInput if there are none, or if no file
    can hold them.
    """
    if isinstance(values, str):
        return read_option(f"{name}={values}")
    place = Place(f"over[{name!r}]")
    problems: list[Problem] = []
    parts = tuple((part, place) for part in _parts(values, place, problems))
    if problems:
        raise SpecErrors(problems)
    if not parts:
        raise BadInput(f"over[{name!r}] has no values")
    return SweptKey(name, place, parts)


def _parts(
    values: Any, place: Place, problems: list[Problem]
) -> Iterator[Sequence[Any]]:
    """A range as it is, other values one by one; adds what no file can hold to
    ``problems``.
    """
    if isinstance(values, range):
        if values:
            yield values
        return
    # A mapping is one value, although it can be iterated.
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        values = (values,)
    for value in values:
        yield (plain_value(value, (), place, problems),)
