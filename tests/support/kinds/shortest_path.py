"""Shortest paths over discovered links, with networkx."""

import itertools

import networkx as nx
from ryu.base import app_manager
from ryu.controller.handler import set_ev_cls
from ryu.topology import event
from ryu.topology.api import get_link, get_switch


class ShortestPath(app_manager.RyuApp):
    @set_ev_cls([event.EventLinkAdd, event.EventLinkDelete])
    def links_changed(self, _):
        graph = nx.DiGraph()
        switches = {}
        for switch in get_switch(self, None):
            switches[switch.dp.id] = switch.dp
            graph.add_node(switch.dp.id)
        for link in get_link(self, None):
            graph.add_edge(
                link.src.dpid, link.dst.dpid, port=link.src.port_no
            )
        first, last = min(switches), max(switches)
        if not nx.has_path(graph, first, last):
            return
        path = nx.shortest_path(graph, first, last)
        n_links = graph.number_of_edges()
        print(f"path {path} of {n_links} links\n", end="")
        for dpid, next_dpid in itertools.pairwise(path):
            self.forward(
                switches[dpid], graph.edges[dpid, next_dpid]["port"]
            )

    def forward(self, switch, port):
        protocol, parser = switch.ofproto, switch.ofproto_parser
        apply = parser.OFPInstructionActions(
            protocol.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(port)]
        )
        match = parser.OFPMatch(eth_type=0x0800, ipv4_dst="10.0.0.9")
        switch.send_msg(
            parser.OFPFlowMod(switch, match=match, instructions=[apply])
        )
