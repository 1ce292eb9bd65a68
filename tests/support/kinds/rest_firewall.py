"""A firewall whose rules are set by HTTP."""

import json

from ryu.app.wsgi import ControllerBase, Response, WSGIApplication, route
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls


class Rules(ControllerBase):
    def __init__(self, request, link, data, **config):
        super().__init__(request, link, data, **config)
        self.firewall = data["firewall"]

    @route("firewall", "/rules", methods=["POST"])
    def add(self, request, **_):
        blocked = request.json["block"]
        for path in self.firewall.datapaths.values():
            parser = path.ofproto_parser
            match = parser.OFPMatch(eth_type=0x0800, ipv4_src=blocked)
            # No instructions: what matches is dropped.
            path.send_msg(parser.OFPFlowMod(path, match=match, priority=99))
        told = json.dumps({"switches": sorted(self.firewall.datapaths)})
        return Response(content_type="application/json", text=told)


class RestFirewall(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.datapaths = {}
        kwargs["wsgi"].register(Rules, {"firewall": self})

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def came(self, event):
        self.datapaths[event.datapath.id] = event.datapath
