"""The lab's network: two racks and a link between them, in network namespaces of this machine.

    sudo python3 network.py up                            makes it
    sudo python3 network.py measure FLOW… [--json]        sends with iperf3, all flows at once
    sudo python3 network.py down                          removes it

Every switch is a namespace lab2-rack0, lab2-rack1 with a Linux bridge, every VM one as lab2-a0. A
switch's end of a VM's cable has the VM's name, its end of the link is called trunk; a VM's device
is eth0. No limit is set. A FLOW is a1-a0; b0-b1x8 is eight connections, b0-b1@80 a UDP flood of
80 Mbit/s. Rates are of frames, as tc counts them, in Mbit/s.
"""

import json
import re
import subprocess
import sys
import time

VMS = {
    "a0": ("rack0", "10.0.1.10"),
    "a1": ("rack0", "10.0.1.11"),
    "a2": ("rack0", "10.0.1.12"),
    "a3": ("rack0", "10.0.1.13"),
    "a4": ("rack1", "10.0.1.14"),
    "b0": ("rack0", "10.0.2.10"),
    "b1": ("rack1", "10.0.2.11"),
}
RACKS = ("rack0", "rack1")
PREFIX = "lab2-"
LARGEST_PACKET_BYTES = 8754  # six segments: a 64 kB packet would be 50 ms of 10 Mbit/s
FLOW = re.compile(r"([ab]\d)-([ab]\d)(?:x(\d+))?(?:@(\d+))?")
FIRST_PORT = 5201
BEFORE_S, COUNTED_S = 1.0, 2.0  # from when all flows send
UNTIL_ALL_SEND_S = 10.0
SENDING_BYTES = 10_000  # of a connection; iperf3's own, which controls the others, carries less
PAYLOAD_BYTES = 1448
FRAME_BYTES = 1514  # of a full TCP segment on the wire


def ip(*words):
    """Runs ip."""
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)


def names():
    return [PREFIX + name for name in (*RACKS, *VMS)]


def is_up():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return any(line.split()[0] in names() for line in listed.stdout.splitlines() if line)


def up():
    """Makes the network."""
    if is_up():
        sys.exit("the network is up already: sudo python3 network.py down")
    for name in names():
        ip("netns", "add", name)
    for rack in RACKS:
        ip("-n", PREFIX + rack, "link", "add", "br0", "type", "bridge")
        ip("-n", PREFIX + rack, "link", "set", "br0", "up")
    one, other = (PREFIX + rack for rack in RACKS)
    ends = "link add trunk type veth peer name trunk netns"
    ip("-n", one, *ends.split(), other)
    for rack in RACKS:
        _port(rack, "trunk")
    for vm, (rack, address) in VMS.items():
        inside = PREFIX + vm
        ip("-n", PREFIX + rack, *f"link add {vm} type veth peer name eth0 netns {inside}".split())
        _port(rack, vm)
        ip("-n", inside, *f"link set eth0 up gso_max_size {LARGEST_PACKET_BYTES}".split())
        ip("-n", inside, *f"address add {address}/24 dev eth0".split())
        subnet = address.rpartition(".")[0] + ".0/24"
        ip("-n", inside, *f"route replace {subnet} dev eth0 src {address} congctl cubic".split())
    print(f"up: {', '.join(names())}")


def _port(rack, device):
    ip("-n", PREFIX + rack, "link", "set", device, "up", "master", "br0")


def down():
    """Removes the network, and with the namespaces all devices and limits."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    there = {line.split()[0] for line in listed.stdout.splitlines() if line}
    for name in names():
        if name in there:
            ip("netns", "delete", name)
    print("down")


def measure(flows):
    """Mbit/s of frames that arrive of each flow, while all of them send."""
    programs, parsed = [], [_parsed(flow) for flow in flows]
    ports = range(FIRST_PORT, FIRST_PORT + len(flows))
    try:
        for (_, receiver, _, _), port in zip(parsed, ports, strict=True):
            programs.append(_iperf3(receiver, "-s", "-1", "-p", str(port)))
        for (_, receiver, _, _), port in zip(parsed, ports, strict=True):
            _until_listening(receiver, port)
        begun = [_received(*each) for each in zip(parsed, ports, strict=True)]
        for (sender, receiver, connections, udp), port in zip(parsed, ports, strict=True):
            to = ["-c", VMS[receiver][1], "-p", str(port), "-t", "60"]
            flood = ["-u", "-b", f"{udp}M", "-l", str(PAYLOAD_BYTES)]
            programs.append(_iperf3(sender, *to, *(flood if udp else ["-P", str(connections)])))
        _until_all_send(parsed, ports, begun)
        time.sleep(BEFORE_S)
        before = [_received(*each) for each in zip(parsed, ports, strict=True)]
        time.sleep(COUNTED_S)
        after = [_received(*each) for each in zip(parsed, ports, strict=True)]
    finally:
        for program in programs:
            program.kill()
            program.wait()
    return [8e-6 * (y[0] - x[0]) / (y[1] - x[1]) for x, y in zip(before, after, strict=True)]


def _parsed(flow):
    match = FLOW.fullmatch(flow)
    if match is None or not {match[1], match[2]} <= VMS.keys():
        sys.exit(f"{flow} is no flow: write a1-a0, b0-b1x8 or b0-b1@80")
    return match[1], match[2], int(match[3] or 1), int(match[4] or 0)


def _inside(vm, *command):
    return ["ip", "netns", "exec", PREFIX + vm, *command]


def _iperf3(vm, *words):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.Popen(_inside(vm, "iperf3", *words), **pipes)


def _until_listening(vm, port):
    command = _inside(vm, "ss", "-Hltn", f"sport = :{port}")
    for _ in range(100):
        if subprocess.run(command, capture_output=True, check=True).stdout:
            return
        time.sleep(0.05)
    sys.exit(f"iperf3 does not listen in {vm}: is the network up?")


def _until_all_send(parsed, ports, begun):
    """Programs start at their own time, later on a busy machine; a flood may starve a flow."""
    until = time.monotonic() + UNTIL_ALL_SEND_S
    for flow, port, (before, _) in zip(parsed, ports, begun, strict=True):
        while _received(flow, port)[0] < before + flow[2] * SENDING_BYTES:
            if time.monotonic() > until:
                return
            time.sleep(0.05)


def _received(flow, port):
    """Bytes of frames that have arrived of a flow, and the time.

    Of TCP from the payload of its connections; of a UDP flood all that its VM has received.
    """
    _, receiver, _, udp = flow
    if udp:
        command = _inside(receiver, "cat", "/proc/net/dev")
    else:
        command = _inside(receiver, "ss", "-Htin", "state", "established", f"sport = :{port}")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    now_s = time.monotonic()
    if udp:
        return int(re.search(r"eth0: *(\d+)", text)[1]), now_s
    payload = sum(map(int, re.findall(r"bytes_received:(\d+)", text)))
    return payload * FRAME_BYTES / PAYLOAD_BYTES, now_s


def main(words):
    if words == ["up"]:
        up()
    elif words == ["down"]:
        down()
    elif words[:1] == ["measure"] and len(words) > 1:
        flows = [word for word in words[1:] if word != "--json"]
        rates = measure(flows)
        if "--json" in words:
            print(json.dumps(rates))
            return
        for flow, rate in zip(flows, rates, strict=True):
            print(f"{flow:<10}{rate:6.2f} Mbit/s")
        print(f"{'sum':<10}{sum(rates):6.2f} Mbit/s")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
