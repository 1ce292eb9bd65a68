"""A learning switch in place of the testbed's controller, for Ryu or os-ken alike.

own-controller.yaml names it. Every switch learns behind which port a MAC address is, and sends what
it knows no port for out of all others: right for a tree; in a fat-tree such frames would circle.
"""

from __future__ import annotations

from typing import Any

try:
    from ryu.base.app_manager import RyuApp as Application
    from ryu.controller import ofp_event
    from ryu.controller.handler import (
        CONFIG_DISPATCHER,
        MAIN_DISPATCHER,
        set_ev_cls,
    )
    from ryu.ofproto import ofproto_v1_3
except ImportError:
    from os_ken.base.app_manager import OSKenApp as Application
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import (
        CONFIG_DISPATCHER,
        MAIN_DISPATCHER,
        set_ev_cls,
    )
    from os_ken.ofproto import ofproto_v1_3

MAC_BYTES = 6


class LearningSwitch(Application):
    """One table of learnt ports for all switches, and a flow for each pair that has talked."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._port_of: dict[tuple[int, str], int] = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, event: Any) -> None:
        """A switch has come: what matches no flow of it is sent here whole."""
        self._add_flow(
            event.msg.datapath, 0, {}, ofproto_v1_3.OFPP_CONTROLLER
        )

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def on_packet(self, event: Any) -> None:
        """Learns the sender's port, and sends the packet on."""
        message = event.msg
        datapath, data, came_in = (
            message.datapath,
            message.data,
            message.match["in_port"],
        )
        target, source = (
            data[:MAC_BYTES].hex(":"),
            data[MAC_BYTES : 2 * MAC_BYTES].hex(":"),
        )
        self._port_of[datapath.id, source] = came_in
        port = self._port_of.get(
            (datapath.id, target), ofproto_v1_3.OFPP_FLOOD
        )
        if port != ofproto_v1_3.OFPP_FLOOD:
            pair = {
                "in_port": came_in,
                "eth_src": source,
                "eth_dst": target,
            }
            self._add_flow(datapath, 1, pair, port)
        parser = datapath.ofproto_parser
        datapath.send_msg(
            parser.OFPPacketOut(
                datapath=datapath,
                buffer_id=ofproto_v1_3.OFP_NO_BUFFER,
                in_port=came_in,
                actions=[parser.OFPActionOutput(port)],
                data=data,
            )
        )

    def _add_flow(
        self, datapath: Any, priority: int, match: dict[str, Any], port: int
    ) -> None:
        parser = datapath.ofproto_parser
        output = parser.OFPActionOutput(port, ofproto_v1_3.OFPCML_NO_BUFFER)
        apply = parser.OFPInstructionActions(
            ofproto_v1_3.OFPIT_APPLY_ACTIONS, [output]
        )
        datapath.send_msg(
            parser.OFPFlowMod(
                datapath=datapath,
                priority=priority,
                match=parser.OFPMatch(**match),
                instructions=[apply],
            )
        )
