"""Asks switches by the service of ofctl, which waits for the replies."""

from ryu.app.ofctl import api
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub


class OfctlService(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def came(self, event):
        hub.spawn(self.ask, event.datapath.id)

    def ask(self, dpid):
        path = api.get_datapath(self, dpid=dpid)
        parser = path.ofproto_parser
        replies = api.send_msg(
            self,
            parser.OFPPortDescStatsRequest(path, 0),
            reply_cls=parser.OFPPortDescStatsReply,
            reply_multi=True,
        )
        ports = [port.port_no for reply in replies for port in reply.body]
        print(f"answered {dpid} {sorted(ports)}\n", end="")
