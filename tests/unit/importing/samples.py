"""A small file of each kind that can be imported."""

from __future__ import annotations

CONTAINERLAB = """\
name: lab
topology:
  nodes:
    leaf: {kind: srl, image: x}
    one: {kind: linux}
    two: {kind: linux}
  links:
    - endpoints: ["one:eth1", "leaf:e1"]
    - {type: veth, endpoints: [{node: two, interface: eth1}, {node: leaf, interface: e2}]}
"""

GRAPHML = """\
<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />
  <key attr.name="label" attr.type="string" for="node" id="d2" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d2">Bern</data></node>
    <node id="1"><data key="d2">Basel</data></node>
    <node id="2" />
    <edge source="0" target="1"><data key="d1">10000000000.0</data></edge>
    <edge source="1" target="2" />
    <edge source="2" target="0" />
  </graph>
</graphml>
"""

GML = """\
Creator "somebody"
graph [
  Network "Small"
  node [
    id 0
    label "Z&#252;rich"
    graphics [ x 1.0 y 2.0 ]
  ]
  node [ id 1 label "Bern" ]
  node [ id 2 label "Bern" ]
  edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]
  edge [
    source 0
    target 2
    LinkSpeed "1" LinkSpeedUnits "G"
  ]
]
"""

PLATFORM = """\
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "simgrid.dtd">
<platform version="4.1">
  <zone id="AS0" routing="Full">
    <cluster id="c" prefix="n" suffix="" radical="0-7" speed="1Gf" bw="125MBps" lat="50us"/>
    <host id="alone" speed="2Gf"/>
    <link id="l" bandwidth="1.25GBps" latency="500us"/>
    <route src="alone" dst="other"><link_ctn id="l"/></route>
  </zone>
</platform>
"""

WORKLOAD = """\
{"nb_res": 4,
 "jobs": [
  {"id": "a", "subtime": 0, "walltime": 100, "res": 4, "profile": "p"},
  {"id": "b", "subtime": 5.5, "walltime": 100, "res": 1, "profile": "d"},
  {"id": "c", "subtime": 6, "walltime": 100, "res": 2, "profile": "s"}],
 "profiles": {
  "p": {"type": "parallel_homogeneous", "cpu": 1e10, "com": 1e6},
  "d": {"type": "delay", "delay": 20},
  "s": {"type": "composed", "repeat": 2, "seq": ["d", "p"]}}}
"""

TASKS = """\
M1,1,j_1,1,Terminated,86400,86410,100.0,0.3
R2_1,3,j_1,1,Terminated,86410,86450,100.0,0.3
M1,2,j_2,1,Failed,86390,86500,50,0.1
"""

SAMPLES = {
    "containerlab": CONTAINERLAB,
    "graphml": GRAPHML,
    "gml": GML,
    "batsim-platform": PLATFORM,
    "batsim-workload": WORKLOAD,
    "alibaba": TASKS,
}
