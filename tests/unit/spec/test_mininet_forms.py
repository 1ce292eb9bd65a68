"""Mininet topologies in the forms in which people write them: all are read, and nothing starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import run as command
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from topologies.datacentre import PLAIN, LinkQuality
from topologies.mininet_record import MininetRecord
from topologies.mininet_topo import notes_of

pytestmark = pytest.mark.needs("mininet")

JOBS = "workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}\n"
MBIT = 10**6
IMPORT = "from mininet.topo import Topo\n"
MINIEDIT = """\
#!/usr/bin/env python

from mininet.net import Mininet
from mininet.node import Controller, RemoteController, OVSController
from mininet.node import CPULimitedHost, Host, Node
from mininet.node import OVSKernelSwitch, UserSwitch
from mininet.node import IVSSwitch
from mininet.cli import CLI
from mininet.log import setLogLevel, info
from mininet.link import TCLink, Intf
from subprocess import call

def myNetwork():

    net = Mininet( topo=None,
                   build=False,
                   ipBase='10.0.0.0/8')

    info( '*** Adding controller\\n' )
    c0=net.addController(name='c0',
                      controller=Controller,
                      protocol='tcp',
                      port=6633)

    info( '*** Add switches\\n')
    s1 = net.addSwitch('s1', cls=OVSKernelSwitch)
    s2 = net.addSwitch('s2', cls=OVSKernelSwitch, dpid='00000000000000a2')
    s1.cmd('touch /tmp/never')

    info( '*** Add hosts\\n')
    h1 = net.addHost('h1', cls=Host, ip='10.0.0.1', defaultRoute=None)
    h2 = net.addHost('h2', cls=Host, ip='10.0.0.2', defaultRoute=None)

    info( '*** Add links\\n')
    s1h1 = {'bw':10}
    net.addLink(s1, h1, cls=TCLink , **s1h1)
    s1s2 = {'bw':5,'delay':'3ms'}
    net.addLink(s1, s2, cls=TCLink , **s1s2)
    net.addLink(s2, h2, cls=TCLink , bw=7.5)

    info( '*** Starting network\\n')
    net.build()
    info( '*** Starting controllers\\n')
    for controller in net.controllers:
        controller.start()

    info( '*** Starting switches\\n')
    net.get('s1').start([c0])
    net.get('s2').start([c0])

    info( '*** Post configure switches and hosts\\n')
    s1.cmd('ifconfig s1 10.0.0.9')
    call('touch never', shell=True)

    CLI(net)
    net.stop()

if __name__ == '__main__':
    setLogLevel( 'info' )
    myNetwork()
"""


def load(
    folder: Path, code: str, name: str | None = "T", more: str = ""
) -> Experiment:
    """The experiment over a file with this text."""
    (folder / "topo.py").write_text(code)
    topo = "" if name is None else f", topo: {name}"
    file = folder / "x.yaml"
    file.write_text(
        f"topology: {{kind: mininet, path: topo.py{topo}{more}}}\n{JOBS}"
    )
    return load_experiment(file)


def links(experiment: Experiment) -> dict[str, Any]:
    """Capacity in Mbit/s of every link, by its two ends in order of their names;
    of those with two ⟨up, down⟩.
    """
    found: dict[str, Any] = {}
    for link in experiment.resolved["topology"]["links"]:
        ends = " ".join(sorted((link["lower"], link["upper"])))
        bps = link["capacity_bps"]
        found[ends] = (
            (bps["up"] / MBIT, bps["down"] / MBIT)
            if isinstance(bps, dict)
            else bps / MBIT
        )
    return found


STAR = {"h1 s1": 10.0, "h2 s1": 10.0}
BODY = """
        s1 = self.addSwitch("s1")
        for i in (1, 2):
            self.addLink(self.addHost(f"h{i}"), s1, bw=10)
"""
FORMS = {
    "build": f"{IMPORT}class T(Topo):\n    def build(self, n=2):{BODY}",
    "init": f"{IMPORT}class T(Topo):\n    def __init__(self, **opts):\n"
    f"        Topo.__init__(self, **opts){BODY}",
    "super": f"{IMPORT}class T(Topo):\n    def __init__(self):\n        super().__init__(){BODY}",
    "attribute": f"""{IMPORT}
class T(Topo):
    hosts_wanted = ["h1", "h2"]
    RATE = 10

    def build(self):
        s1 = self.addSwitch("s1", dpid="0000000000000001", protocols="OpenFlow13")
        for at, name in enumerate(self.hosts_wanted, 1):
            host = self.addHost(name, ip=f"10.0.0.{{at}}/24", defaultRoute="via 10.0.0.254")
            self.addLink(s1, host, port1=at, port2=0, bw=self.RATE)
""",
    "function": f"{IMPORT}class Other(Topo):\n    def build(self):{BODY}\n"
    "def T():\n    return Other()\n",
    "two steps": f"""{IMPORT}
class Other(Topo):
    def __init__(self, n):
        self.n = n
        Topo.__init__(self)
    def create(self):{BODY}
def T():
    topo = Other(2)
    topo.create()
    return topo
""",
    "lambda": f"{IMPORT}class Other(Topo):\n    def build(self):{BODY}\n"
    "topos = {'T': (lambda: Other())}\n",
    "object": f"{IMPORT}class Other(Topo):\n    def build(self):{BODY}\nT = Other()\n",
    "function of a network": f"""{IMPORT}
from mininet.net import Mininet
from mininet.link import TCLink
class Other(Topo):
    def build(self):{BODY}
def T():
    net = Mininet(Other(), link=TCLink, controller=None)
    for number, host in enumerate(net.hosts, 1):
        host.setIP(ip="10.0.0.%d" % number, prefixLen=24)
    net.start()
    for host in net.hosts:
        print(host.cmd("ip addr").splitlines()[1])
    net.stop()
""",
    "a network that is returned": """
from functools import partial
from mininet.net import Mininet
from mininet.link import TCLink
def T():
    net = Mininet(link=partial(TCLink, bw=10), autoStaticArp=True)
    net.addSwitch("s1")
    for i in (1, 2):
        net.addHost("h%d" % i)
        net.addLink("h%d" % i, net["s1"])
    return net
""",
    "a copy of Mininet's class": (
        "import inspect, mininet.topo\n"
        "exec(inspect.getsource(mininet.topo))\n"
        f"class T(Topo):\n    def build(self):{BODY}"
    ),
    "a subclass of Mininet's own": f"{IMPORT}from mininet.topolib import TreeTopo\n"
    "class T(TreeTopo):\n    def __init__(self):\n"
    "        super().__init__(1, 2, lopts={'bw': 10})\n",
    "a script at its top": f"""{IMPORT}
from mininet.net import Mininet
class T(Topo):
    def build(self):{BODY}
net = Mininet(topo=T())
net.start()
raise ValueError("a network that is up is needed for this")
""",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read(form: str, tmp_path: Path) -> None:
    assert links(load(tmp_path, FORMS[form])) == STAR


@pytest.mark.slow
def test_classes_of_mininet_itself(tmp_path: Path) -> None:
    code = "from mininet.topolib import TreeTopo, TorusTopo\n"
    more = ", args: {depth: 2, fanout: 3}, default_bw: 20 Mbit/s"
    experiment = load(tmp_path, code, "TreeTopo", more)
    assert experiment.datacentre.n_servers == 9
    assert set(links(experiment).values()) == {20.0}
    assert experiment.topology_notes == (
        "12 links without bw: 20 Mbit/s, by default_bw",
    )


@pytest.mark.slow
def test_the_file_that_mininet_has_them_in(tmp_path: Path) -> None:
    import mininet.topo

    code = Path(str(mininet.topo.__file__)).read_text()
    more = ", args: {k: 3, lopts: {bw: 10}}"
    experiment = load(tmp_path, code, "LinearTopo", more)
    assert experiment.datacentre.names[:3] == ("h1", "h2", "h3")


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "myNetwork"])
def test_an_export_of_miniedit(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = load(tmp_path, MINIEDIT, name)
    assert links(experiment) == {"h1 s1": 10, "h2 s2": 7.5, "s1 s2": 5}
    assert experiment.topology_notes == (
        "left out, options of nodes: dpid (1)",
        "1 link with delay 3 ms",
        LIVE_ALONE,
    )
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_a_script_without_a_name_may_hold_one_class(tmp_path: Path) -> None:
    assert links(load(tmp_path, FORMS["build"], None)) == STAR
    with pytest.raises(
        SpecErrors, match=r"name a class or a function of it"
    ):
        load(tmp_path, FORMS["function"], None)


@pytest.mark.slow
def test_a_class_that_needs_a_second_step_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        SpecErrors, match=r"if create add them, write a funct"
    ):
        load(tmp_path, FORMS["two steps"], "Other", ", args: {n: 2}")


@pytest.mark.slow
def test_modules_beside_it_also_by_names_of_ours(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("RATE = 10\n")
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "__init__.py").write_text(
        "HOSTS = ('h1', 'h2')\n"
    )
    code = f"""{IMPORT}
from jobs import RATE
import testbed
class T(Topo):
    def build(self):
        import jobs
        s1 = self.addSwitch("s1")
        for name in testbed.HOSTS:
            self.addLink(self.addHost(name), s1, bw=jobs.RATE)
"""
    assert links(load(tmp_path, code)) == STAR


ARGUMENTS = f"""{IMPORT}
import argparse, sys
options = argparse.ArgumentParser()
options.add_argument("--bw", type=int, default=10)
RATE = options.parse_args().bw
class T(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        for name in ("h1", "h2")[:int(sys.argv[2]) if len(sys.argv) > 3 else 2]:
            self.addLink(self.addHost(name), s1, bw=RATE)
"""


@pytest.mark.slow
def test_arguments_are_the_files_and_not_ours(tmp_path: Path) -> None:
    assert links(load(tmp_path, ARGUMENTS)) == STAR
    own = links(load(tmp_path, ARGUMENTS, more=", argv: ['--bw', 30]"))
    assert own == {"h1 s1": 30, "h2 s1": 30}
    with pytest.raises(
        SpecErrors, match=r"topology\.path: raises SystemExit"
    ):
        load(tmp_path, ARGUMENTS, more=", argv: [--speed]")


@pytest.mark.slow
def test_what_the_file_does_to_its_process_ends_with_it(
    tmp_path: Path,
) -> None:
    code = f"{IMPORT}import os\nos._exit(3)\n"
    with pytest.raises(
        SpecErrors, match=r"ends its process with 3, without"
    ):
        load(tmp_path, code)
    forks = f"{IMPORT}import os\nos.fork()\n"
    with pytest.raises(
        SpecErrors, match=r"topo\.py:3:1: .*without starting"
    ):
        load(tmp_path, forks)
    waits = f"{IMPORT}import time\nwhile True:\n    time.sleep(1)\n"
    with pytest.raises(SpecErrors, match=r"topo\.py:4:5: .*nothing starts"):
        load(tmp_path, waits)


@pytest.mark.slow
def test_programs_that_a_file_runs_do_nothing(tmp_path: Path) -> None:
    marks = [tmp_path / f"mark{i}" for i in range(4)]
    code = f"""{FORMS["build"]}
import os, subprocess
from mininet.util import quietRun
from mininet.clean import cleanup
os.system("touch {marks[0]}")
subprocess.run(["touch", "{marks[1]}"], check=True)
assert subprocess.check_output("echo; touch {marks[2]}", shell=True, text=True) == ""
piped = dict(stdout=subprocess.PIPE, errors="replace")
assert subprocess.run(["touch", "{marks[1]}"], **piped).stdout == ""
quietRun("touch {marks[3]}")
cleanup()
"""
    assert links(load(tmp_path, code)) == STAR
    assert not any(mark.exists() for mark in marks)


@pytest.mark.slow
def test_a_default_is_for_links_without_bw_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"""{IMPORT}
class T(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        self.addLink(self.addHost("h1"), s1)
        self.addLink(self.addHost("h2"), s1, bw=2.5)
"""
    with pytest.raises(
        SpecErrors, match=r"h1<->s1: .*default_bw: 100 Mbit/s"
    ):
        load(tmp_path, code)
    more = ", default_bw: 0.1 Gbit/s"
    assert links(load(tmp_path, code, more=more)) == {
        "h1 s1": 100,
        "h2 s1": 2.5,
    }
    assert command(["validate", str(tmp_path / "x.yaml")]) == 0
    assert (
        "1 link without bw: 100 Mbit/s, by default_bw"
        in capsys.readouterr().out
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "capacity"),
    [
        ({"bw": 8}, {"bw": 3}, (8, 3)),
        ({"bw": 3}, {"bw": 8}, (3, 8)),
        ({"bw": 8}, {}, (8, 5)),
        ({"bw": 8}, {"bw": 8}, 8),
    ],
)
def test_an_ends_bandwidth_is_the_capacity_of_what_it_sends(
    first: dict[str, int],
    second: dict[str, int],
    capacity: object,
    tmp_path: Path,
) -> None:
    code = f"""{IMPORT}
class T(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        self.addLink(self.addHost("h1"), s1, params1={first}, params2={second})
        # The upper end first: what it sends goes down.
        self.addLink(s1, self.addHost("h3"), params1={{"bw": 7}}, params2={{"bw": 2}})
        self.addLink(self.addHost("h2"), s1, bw=4, params1={{"bw": 9}})
"""
    experiment = load(tmp_path, code, more=", default_bw: 5 Mbit/s")
    assert links(experiment) == {
        "h1 s1": capacity,
        "h2 s1": 4,
        "h3 s1": (2, 7),
    }
    assert not any("another bw" in note for note in experiment.notes)


CLASSES = f"""{IMPORT}
from functools import partial
from mininet.link import Link, TCIntf, TCLink

class Slow(TCLink):
    def __init__(self, node1, node2, loss=1, **options):
        options.update(delay="5ms", bw=20)
        TCLink.__init__(self, node1, node2, loss=loss, **options)

class Lossy(TCIntf):
    def config(self, **options):
        return TCIntf.config(self, **{{**options, "bw": 20, "loss": 2}})

def slow(*ends, **options):
    return Slow(*ends, **options)

class T(Topo):
    def build(self):
        s1 = self.addSwitch("s1")
        for number, options in enumerate([
            dict(cls=Slow),
            dict(cls=partial(Slow, loss=3)),
            dict(cls=slow, loss=4, bw=7),
            dict(intf=Lossy),
            dict(cls=Link, bw=20, cls1=partial(TCIntf, delay="1ms")),
        ]):
            self.addLink(self.addHost(f"h{{number}}"), s1, **options)
"""


@pytest.mark.slow
def test_link_classes_of_the_files_own_set_their_options(
    tmp_path: Path,
) -> None:
    experiment = load(tmp_path, CLASSES)
    assert set(links(experiment).values()) == {20}
    centre = experiment.datacentre
    ways = list(
        zip(centre.qualities[::2], centre.qualities[1::2], strict=True)
    )
    slow = LinkQuality(delay_s=0.005, loss_share=0.01)
    lossy = LinkQuality(loss_share=0.02)
    assert ways == [
        (slow, slow),
        *[(replace(slow, loss_share=share),) * 2 for share in (0.03, 0.04)],
        (lossy, lossy),
        (LinkQuality(delay_s=0.001), PLAIN),
    ]


@pytest.mark.slow
def test_a_link_class_that_cannot_be_executed_is_told(
    tmp_path: Path,
) -> None:
    code = CLASSES.replace("options.update(", "node1.nothing(")
    experiment = load(tmp_path, code, more=", default_bw: 20 Mbit/s")
    why = "its code cannot be executed here; write bw, delay and the like in addLink"
    assert {
        f"left out, what Slow sets for h0<->s1, h1<->s1: {why}",
        f"left out, what slow sets for h2<->s1: {why}",
    } <= set(experiment.topology_notes)


LIVE_ALONE = (
    "delay, jitter and loss are the live network's (netem): decisions and"
    " simulated times do not depend on them"
)


def test_what_is_left_out_is_said() -> None:
    record = MininetRecord(
        links=[("a", "b", {"bw": 1, "delay": "5ms", "loss": 0})],
        left_out=["nat0 is left out"],
    )
    assert notes_of(record) == ("nat0 is left out",)


def test_links_of_vms_to_their_servers_bridge_have_no_bw_to_miss() -> None:
    record = MininetRecord(
        nodes={
            "h1": {},
            "b1": {"slots": 2, "isSwitch": True},
            "s1": {"isSwitch": True},
            "s2": {"isSwitch": True},
        },
        links=[
            ("h1", "b1", {}),
            ("b1", "s1", {}),
            ("s1", "s2", {"params1": {"bw": 1}}),
        ],
    )
    (note,) = notes_of(record, default_bps=20_000_000)
    assert note == "2 links without bw: 20 Mbit/s, by default_bw"


def test_what_links_of_vms_ask_for_is_told_by_their_names() -> None:
    plain = {"delay": "0ms", "loss": 0, "bw": None}
    record = MininetRecord(
        nodes={
            **{f"h{n}": {} for n in range(8)},
            "b1": {"slots": 8, "isSwitch": True},
            "s1": {"isSwitch": True},
        },
        links=[
            ("h0", "b1", {"params1": {"jitter": "1ms"}}),
            ("b1", "h1", {"bw": 5, "params2": {"max_queue_size": 9}}),
            *[
                (f"h{n}", "b1", {"delay": "5ms", "loss": 1})
                for n in range(2, 7)
            ],
            ("h7", "b1", plain),
            ("b1", "s1", {"bw": 5, "delay": "5ms", "loss": 1}),
        ],
    )
    (note,) = notes_of(record)
    assert note == (
        "left out, bw, delay, jitter, loss, max_queue_size of h0<->b1,"
        " b1<->h1, h2<->b1, h3<->b1, h4<->b1 and 2 more: a VM has no link of"
        " its own at its server's switch; give them to the link above that"
        " switch"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        "import sys\nBW = int(sys.argv[1])\n",
        """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('bw', type=int)
BW = parser.parse_args().bw
""",
    ],
    ids=["argv", "argparse"],
)
def test_a_script_that_wants_arguments_is_told_their_key(
    head: str, tmp_path: Path
) -> None:
    code = f"""{IMPORT}
{head}
class T(Topo):
    def build(self):
        switch = self.addSwitch("s1")
        for name in ("h1", "h2"):
            self.addLink(self.addHost(name), switch, bw=BW)
"""
    with pytest.raises(SpecErrors) as told:
        load(tmp_path, code)
    (problem,) = told.value.problems
    assert problem.message.endswith(
        "a script's arguments are topology: {argv: [--hosts, 4]}"
    )
    load(tmp_path, code, more=", argv: [30]")
    # Another mistake is not about arguments.
    with pytest.raises(SpecErrors) as told:
        load(tmp_path, "import sys\n[][0]\n", more=", argv: [30]")
    assert "argv" not in str(told.value)
