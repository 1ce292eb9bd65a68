"""Functions of installed packages that make a topology, a workload or a demand.

The keys of such a section are the function's parameters, with their annotations
and defaults (:mod:`testbed.spec.unit_types` has the quantities with units). The
first line of the docstring describes the section.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import create_model

from testbed.plugins import (
    Group,
    Installed,
    PluginError,
    PluginUse,
    installed,
    raised_anywhere,
    shown_value,
)
from testbed.spec.document import Location
from testbed.spec.validation import Section, read_section
from topologies.datacentre import DataCentre, TopologyError

T = TypeVar("T")

LEADING: Mapping[Group, tuple[str, ...]] = {
    "workloads": ("datacentre", "random")
}
"""The names of arguments that no key gives: a function has them first."""


@dataclass(frozen=True)
class PluginFunction:
    """A function of an installed package, and the section that its parameters
    are read by.
    """

    use: PluginUse
    function: Callable[..., Any]
    section: type[Section]

    def read(self, location: Location) -> dict[str, Any] | None:
        """The parameters that a mapping gives the function; None, and reported,
        where some are wrong.
        """
        section = read_section(self.section, location)
        names = list(self.section.model_fields)
        if section is None or not section.is_readable(*names):
            return None
        return {name: section[name] for name in names if name != "kind"}

    def made(self, wanted: type[T], parameters: Mapping[str, Any]) -> T:
        """Calls the function; its prints go to standard error.

        Raises PluginError where it raises, or returns a value of another type.
        A topology's own TopologyError passes.
        """
        try:
            with redirect_stdout(sys.stderr):
                made = self.function(**parameters)
        except (Exception, SystemExit) as error:
            if wanted is DataCentre and isinstance(error, TopologyError):
                raise
            raise self.error(raised_anywhere(error)) from error
        if not isinstance(made, wanted):
            raise self.error(
                f"makes {shown_value(made)}, not a {wanted.__name__}"
            )
        return made

    def error(self, reason: str) -> PluginError:
        """An error that names the function."""
        return PluginError(f"{self.use.source} {reason}")


def plugin_function(
    location: Location, group: Group
) -> PluginFunction | None:
    """The function that a key names; None, and reported, where it cannot be
    used.
    """
    try:
        return loaded_function(group, installed(group)[location.value])
    except PluginError as error:
        location.report(error.reason)
        return None


def known_functions(group: Group) -> list[PluginFunction]:
    """All functions of a group that can be used, by name."""
    functions = []
    for plugin in installed(group).values():
        try:
            functions.append(loaded_function(group, plugin))
        except PluginError:
            # Reported where a file uses it.
            continue
    return functions


@cache
def loaded_function(group: Group, plugin: Installed) -> PluginFunction:
    """The function of an entry point. Raises PluginError where it is no
    function, or has parameters that no file can have.
    """
    loaded = plugin.load()
    if not callable(loaded.value):
        raise PluginError(
            f"{loaded.source} is {shown_value(loaded.value)}, not a function"
        )
    use = PluginUse(group, plugin.name, loaded.source)
    try:
        return PluginFunction(
            use, loaded.value, _section(group, plugin.name, loaded.value)
        )
    # An annotation is code of the package, which may raise anything.
    except Exception as error:
        # The first line of pydantic's message names the fault.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise PluginError(
            f"{loaded.source}: its parameters cannot be read: {reason}"
        ) from error


def _section(
    group: Group, name: str, function: Callable[..., Any]
) -> type[Section]:
    """The section whose keys are the function's parameters and, but for demands,
    ``kind``. Raises ValueError for parameters that no file can have.
    """
    # The extras of an Annotated quantity have its unit.
    hints = get_type_hints(function, include_extras=True)
    parameters = list(signature(function).parameters.values())
    leading = LEADING.get(group, ())
    names = tuple(parameter.name for parameter in parameters)
    if names[: len(leading)] != leading:
        raise ValueError(f"the first two must be {' and '.join(leading)}")
    fields: dict[str, Any] = {}
    # Demands are chosen by the job's kind, not by a key of their own.
    if group != "demands":
        fields["kind"] = (Literal[name], ...)
    for parameter in parameters[len(leading) :]:
        annotation = _annotation(parameter, hints)
        fields[parameter.name] = (annotation, _default(parameter))
    summary = next(
        iter((function.__doc__ or "").strip().splitlines()), name
    )
    with warnings.catch_warnings():
        # pydantic warns of names that it uses itself.
        warnings.simplefilter("ignore")
        return create_model(
            name, __base__=Section, __doc__=summary, **fields
        )


def _annotation(parameter: Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        raise ValueError(
            f"*{parameter.name} is no key that a file can give"
        )
    # A section has attributes of these names.
    if (
        parameter.name == "kind"
        or hasattr(Section, parameter.name)
        or parameter.name.startswith("_")
    ):
        raise ValueError(
            f"{parameter.name} has a meaning of its own: call it otherwise"
        )
    if parameter.name not in hints:
        raise ValueError(
            f"{parameter.name} has no annotation, as {parameter.name}: int"
        )
    return hints[parameter.name]


def _default(parameter: Parameter) -> Any:
    if parameter.default is Parameter.empty:
        return ...
    return parameter.default
