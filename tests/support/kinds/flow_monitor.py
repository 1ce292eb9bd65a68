"""Asks every switch for its counters, as monitors of traffic do."""

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub


class FlowMonitor(app_manager.RyuApp):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.datapaths = {}
        self.asking = hub.spawn(self.ask)

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def came(self, event):
        self.datapaths[event.datapath.id] = event.datapath

    def ask(self):
        while True:
            for path in list(self.datapaths.values()):
                parser = path.ofproto_parser
                path.send_msg(parser.OFPFlowStatsRequest(path))
                any_port = path.ofproto.OFPP_ANY
                path.send_msg(parser.OFPPortStatsRequest(path, 0, any_port))
            hub.sleep(0.5)

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, MAIN_DISPATCHER)
    def flows(self, event):
        dpid = event.msg.datapath.id
        print(f"flows of {dpid} {len(event.msg.body)}\n", end="")

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    def ports(self, event):
        dpid = event.msg.datapath.id
        print(f"ports of {dpid} {len(event.msg.body)}\n", end="")
