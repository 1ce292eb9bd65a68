"""Hosenet: bandwidth-reserving data-centre schedulers on an emulated, real network."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.runs.standing_network import up as up
else:

    def __getattr__(name):
        """The functions of the Python interface, imported when they are first asked for."""
        if name == "up":
            from testbed.runs.standing_network import up

            return up
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
