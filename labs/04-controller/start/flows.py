"""Your rules. Pure: no packet is sent here, and Python's standard library is all it may import.

A tenant is a dict, as in tenants.json:

    {"id": 1, "prefix": "10.0.4.0/22",
     "vms":  [{"ip": "10.0.4.1", "mac": "02:48:4e:00:00:01", "dpid": 1, "port": 1}, …],
     "tree": [{"child_dpid": 1, "child_port": 3, "parent_dpid": 5, "parent_port": 1}, …]}

`dpid` and `port` of a VM are the switch and the port that it is attached to. `tree` has the links
that the tenant's traffic takes; where all its VMs are on one switch it is empty.

An entry is a dict:

    {"table": 0, "priority": 100, "cookie": 1, "match": {"in_port": 1}, "then": ["goto", 1]}

`match` has any of in_port, eth_src, eth_dst, eth_type, vlan_vid, ipv4_src, ipv4_dst, by OpenFlow's
rules; addresses may be prefixes, and {} matches every packet. `then` is ["goto", TABLE],
["output", PORT] or ["drop"]. The cookie is the tenant's id, 0 where an entry is nobody's.
"""


def rules(dpid, tenants):
    """All entries of the switch `dpid`, for all tenants."""
    return []


if __name__ == "__main__":
    import json
    from pathlib import Path

    every = json.loads(Path(__file__).with_name("tenants.json").read_text())
    for switch in sorted({end for tenant in every for edge in tenant["tree"]
                          for end in (edge["child_dpid"], edge["parent_dpid"])}):  # fmt: skip
        entries = rules(switch, every)
        print(f"switch {switch}: {len(entries)} entries")
        for one in entries:
            print("   ", json.dumps(one))
