"""Entries of a switch: a source filter in table 0, forwarding along a tenant's tree in table 1."""

IPV4 = 0x0800
UNTAGGED = 0


def rules(dpid, tenants):
    """All entries of the switch `dpid`, for all tenants."""
    drops = [entry(table, 0, 0, {}, ["drop"]) for table in (0, 1)]
    return drops + [one for tenant in tenants for one in of_tenant(dpid, tenant)]


def entry(table, priority, cookie, match, then):
    return {"table": table, "priority": priority, "cookie": cookie, "match": match, "then": then}


def of_tenant(dpid, tenant):
    """The source filter, then forwarding: to a VM below, or else up."""
    number, prefix = tenant["id"], tenant["prefix"]
    own = [vm for vm in tenant["vms"] if vm["dpid"] == dpid]
    down, up = ports_below(dpid, tenant), port_up(dpid, tenant)
    if not down:
        return []
    plain = {"eth_type": IPV4, "vlan_vid": UNTAGGED}
    found = []
    for vm in own:
        sender = {"in_port": vm["port"], "eth_src": vm["mac"], "ipv4_src": vm["ip"]}
        found.append(entry(0, 100, number, plain | sender, ["goto", 1]))
    for port in tree_ports(dpid, tenant):
        match = plain | {"in_port": port, "ipv4_src": prefix}
        found.append(entry(0, 100, number, match, ["goto", 1]))
    for address, port in down.items():
        match = {"eth_type": IPV4, "ipv4_src": prefix, "ipv4_dst": address}
        found.append(entry(1, 200, number, match, ["output", port]))
    if up is not None:
        match = {"eth_type": IPV4, "ipv4_src": prefix, "ipv4_dst": prefix}
        found.append(entry(1, 100, number, match, ["output", up]))
    return found


def tree_ports(dpid, tenant):
    """Ports of this switch that links of the tenant's tree end at."""
    ends = [(edge["child_dpid"], edge["child_port"]) for edge in tenant["tree"]]
    ends += [(edge["parent_dpid"], edge["parent_port"]) for edge in tenant["tree"]]
    return [port for switch, port in ends if switch == dpid]


def port_up(dpid, tenant):
    """The port to the parent in the tenant's tree; None at its top."""
    ports = [edge["child_port"] for edge in tenant["tree"] if edge["child_dpid"] == dpid]
    return ports[0] if ports else None


def ports_below(dpid, tenant):
    """Address of each VM at or below this switch -> the port that leads there."""
    ports = {vm["ip"]: vm["port"] for vm in tenant["vms"] if vm["dpid"] == dpid}
    for edge in tenant["tree"]:
        if edge["parent_dpid"] == dpid:
            below = ports_below(edge["child_dpid"], tenant)
            ports.update(dict.fromkeys(below, edge["parent_port"]))
    return ports


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
