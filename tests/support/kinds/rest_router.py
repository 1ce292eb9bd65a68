"""A router whose addresses are set by HTTP: it routes between their networks."""

import ipaddress

from ryu.app.wsgi import ControllerBase, Response, WSGIApplication, route
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls


class Addresses(ControllerBase):
    def __init__(self, request, link, data, **config):
        super().__init__(request, link, data, **config)
        self.router = data["router"]

    @route("router", "/router/{dpid}/{port}", methods=["POST"])
    def add(self, request, dpid, port, **_):
        network = ipaddress.ip_interface(request.json["address"]).network
        path = self.router.datapaths.get(int(dpid))
        if path is None:
            return Response(status=404)
        protocol, parser = path.ofproto, path.ofproto_parser
        match = parser.OFPMatch(
            eth_type=0x0800,
            ipv4_dst=(str(network.network_address), str(network.netmask)),
        )
        actions = [
            parser.OFPActionDecNwTtl(),
            parser.OFPActionSetField(eth_src="02:00:00:00:00:fe"),
            parser.OFPActionOutput(int(port)),
        ]
        apply = parser.OFPInstructionActions(
            protocol.OFPIT_APPLY_ACTIONS, actions
        )
        path.send_msg(
            parser.OFPFlowMod(
                path, match=match, instructions=[apply], priority=5
            )
        )
        return Response(text=f"{network} is behind port {port}")


class RestRouter(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.datapaths = {}
        kwargs["wsgi"].register(Addresses, {"router": self})

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def came(self, event):
        self.datapaths[event.datapath.id] = event.datapath
