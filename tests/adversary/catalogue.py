"""All attacks, in the order of their cost."""

from __future__ import annotations

from tests.adversary import (
    folders,
    foreign_input,
    live_network,
    ports,
    terminals,
    virtual_machines,
    whole_commands,
)
from tests.adversary.attack import Attack


def attacks() -> list[Attack]:
    every: list[Attack] = []
    for module in (
        terminals,
        folders,
        ports,
        virtual_machines,
        foreign_input,
        live_network,
        whole_commands,
    ):
        every += module.attacks()
    return every
