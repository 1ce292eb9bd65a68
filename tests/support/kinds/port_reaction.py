"""Deletes the flows that lead out of a port that is down."""

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls


class PortReaction(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def changed(self, event):
        path, port = event.msg.datapath, event.msg.desc
        protocol, parser = path.ofproto, path.ofproto_parser
        if port.state & protocol.OFPPS_LINK_DOWN:
            print(f"port {port.port_no} of {path.id} is down\n", end="")
            delete = parser.OFPFlowMod(
                path,
                command=protocol.OFPFC_DELETE,
                out_port=port.port_no,
                out_group=protocol.OFPG_ANY,
            )
            path.send_msg(delete)
