"""Hears of switches by the context ``dpset``, as older applications do."""

from ryu.base import app_manager
from ryu.controller import dpset
from ryu.controller.handler import set_ev_cls


class DatapathSet(app_manager.RyuApp):
    _CONTEXTS = {"dpset": dpset.DPSet}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.dpset = kwargs["dpset"]

    @set_ev_cls(dpset.EventDP, dpset.DPSET_EV_DISPATCHER)
    def came(self, event):
        if event.enter:
            known = sorted(dpid for dpid, _ in self.dpset.get_all())
            n_ports = len(event.ports)
            print(f"set {event.dp.id} in {known} {n_ports} ports\n", end="")
