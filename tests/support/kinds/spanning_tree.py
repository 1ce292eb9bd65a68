"""The library's spanning tree: ports that would close a loop are blocked."""

from ryu.base import app_manager
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib import stplib


class SpanningTree(app_manager.RyuApp):
    _CONTEXTS = {"stplib": stplib.Stp}

    @set_ev_cls(stplib.EventPortStateChange, MAIN_DISPATCHER)
    def changed(self, event):
        blocked = event.port_state == stplib.PORT_STATE_BLOCK
        port = f"port {event.dp.id} {event.port_no}"
        print(f"{port} blocked: {blocked}\n", end="")

    @set_ev_cls(stplib.EventPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        print(f"no BPDU at {event.msg.datapath.id}\n", end="")
