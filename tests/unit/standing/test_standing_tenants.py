"""Tenants of a network that stays up: admitted while there is room, refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import Enforcement, JobRequest
from testbed.errors import BadInput, DoesNotFit, RunFailed
from testbed.spec.experiment_file import parse_experiment
from testbed.standing import standing_vms
from testbed.standing.keeper import (
    Keeper,
    StandingSetup,
    _narrated,
    _user_name,
    admit_jobs,
    embedder_of,
)
from testbed.standing.keeper_protocol import (
    AddTenant,
    KeeperRequest,
    RemoveTenant,
    RerateTenant,
)
from testbed.standing.network_state import TenantState
from testbed.standing.standing_tenants import StandingTenants
from testbed.standing.standing_vms import StandingVms
from testbed.standing.tenant_placement import open_placement
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation
from topologies.custom import custom
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

MBIT = 10**6
GBIT = 10**9
ACROSS = [("server 0", 1), ("server 1", 1)]


class Network:
    """Two racks of two servers of two slots; a link has 1 Gbit/s."""

    def __init__(
        self,
        folder: Path,
        datacentre: Any = None,
        mode: Enforcement = "strict",
    ) -> None:
        self.fake = FakeEmulation(
            datacentre or tree([2, 2], [GBIT, GBIT], 2)
        )
        emulation: Any = self.fake
        self.tenants = StandingTenants(
            emulation, SCALE_RATE, "oktopus", folder, mode
        )

    def add(
        self,
        name: str,
        n_vms: int,
        bandwidth_bps: int,
        at: Sequence[tuple[str, int]] = (),
        enforcement: str | None = None,
    ) -> TenantState:
        """Admit a tenant."""
        return self.tenants.add(
            AddTenant(
                name,
                n_vms,
                bandwidth_bps,
                at=tuple(at),
                enforcement=enforcement,
            )
        )

    @property
    def names(self) -> list[str]:
        self.tenants.ledger.check()
        return [state.name for state in self.tenants.states()]


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path)


def test_a_tenant_has_its_vms_their_names_and_its_share_of_links(
    network: Network, tmp_path: Path
) -> None:
    state = network.add("a", 3, 100 * MBIT)
    assert [vm.name for vm in state.vms] == ["a.0", "a.1", "a.2"]
    assert [vm.server for vm in state.vms] == [
        "server 0",
        "server 0",
        "server 1",
    ]
    assert state.bandwidth_bps == 100 * MBIT
    assert state.wire_bps == 100 * MBIT * SCALE_RATE
    assert dict(state.links) == {
        "server 0 -> rack 0": 100 * MBIT,
        "rack 0 -> server 0": 100 * MBIT,
        "server 1 -> rack 0": 100 * MBIT,
        "rack 0 -> server 1": 100 * MBIT,
    }
    hosts = tmp_path / "hosts.a"
    assert {vm.hosts for vm in state.vms} == {str(hosts)}
    assert f"{state.vms[2].ip}\ta.2\n" in hosts.read_text()
    assert hosts.stat().st_mode & 0o777 == 0o644
    assert str(hosts) in network.fake.recorded
    assert network.fake.here == {"a"}


def test_removed_it_leaves_nothing_and_its_place_is_free(
    network: Network, tmp_path: Path
) -> None:
    first = network.add("a", 8, 100 * MBIT)
    with pytest.raises(DoesNotFit):
        network.add("b", 1, MBIT)
    network.tenants.remove("a")
    assert network.names == []
    assert network.fake.here == set()
    assert network.fake.recorded == set()
    assert list(tmp_path.iterdir()) == []
    again = network.add("b", 8, 100 * MBIT)
    assert [vm.ip for vm in again.vms] == [vm.ip for vm in first.vms]


def test_while_the_controller_is_stopped_it_is_whole(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.add("a", 8, 100 * MBIT)
    touched: list[str] = []
    for verb in ("end_processes", "dismiss"):
        monkeypatch.setattr(
            network.fake, verb, lambda _, verb=verb: touched.append(verb)
        )
    network.fake.stopped = True
    with pytest.raises(RunFailed, match="is stopped"):
        network.tenants.remove("a")
    assert touched == []
    assert network.names == ["a"]
    network.fake.stopped = False
    network.tenants.remove("a")
    assert touched == ["end_processes", "dismiss"]
    assert network.names == []


def test_more_than_a_link_has_is_refused_with_its_name_and_numbers(
    network: Network,
) -> None:
    network.add("a", 4, 400 * MBIT, at=[("server 0", 2), ("2", 2)])
    with pytest.raises(DoesNotFit) as refused:
        network.add(
            "b", 2, 300 * MBIT, at=[("server 1", 1), ("server 3", 1)]
        )
    assert refused.value.message == (
        "tenant b does not fit: rack 0 -> core 0: 300 Mbit/s asked, 200 Mbit/s free"
    )
    assert refused.value.exit_code == 1
    assert network.names == ["a"]
    assert network.fake.here == {"a"}


def test_a_rate_is_changed_in_place_or_not_at_all(network: Network) -> None:
    network.add("a", 2, 400 * MBIT, at=[("0", 1), ("1", 1)])
    network.add("b", 2, 300 * MBIT, at=[("0", 1), ("1", 1)])
    before = network.tenants.state("a")
    with pytest.raises(
        DoesNotFit, match="800 Mbit/s asked, 700 Mbit/s free"
    ):
        network.tenants.rerate("a", 800 * MBIT)
    network.fake.refused_bps = {round(600 * MBIT * SCALE_RATE)}
    with pytest.raises(RunFailed, match="tc refused"):
        network.tenants.rerate("a", 600 * MBIT)
    assert network.tenants.state("a") == before
    after = network.tenants.rerate("a", 700 * MBIT)
    assert (after.bandwidth_bps, after.wire_bps) == (
        700 * MBIT,
        700 * MBIT * SCALE_RATE,
    )
    assert after.vms == before.vms
    assert network.names == ["a", "b"]


def test_what_fails_leaves_no_hosts_file(
    network: Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr(StandingVms, "_hosts", full)
    with pytest.raises(RunFailed, match="tenant a: no space left"):
        network.add("a", 2, MBIT)
    assert list(tmp_path.iterdir()) == []
    assert network.fake.recorded == set()


def test_the_hosts_file_is_utf_8_whatever_the_locale(
    network: Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def in_latin_1(
        descriptor: int, mode: str, encoding: str = "latin-1"
    ) -> Any:
        return open(descriptor, mode, encoding=encoding)

    monkeypatch.setattr(standing_vms.os, "fdopen", in_latin_1)
    monkeypatch.setattr(standing_vms, "machines_hosts", lambda: "# žluť\n")
    network.add("a", 2, MBIT)
    assert (tmp_path / "hosts.a").read_text("utf-8").startswith("# žluť\n")


def test_what_is_not_admitted_changes_nothing(
    network: Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(network.fake, "open_vm", failing)
    with pytest.raises(RunFailed, match="tenant a: no space left"):
        network.add("a", 8, 100 * MBIT)
    assert network.names == []
    assert network.fake.here == set()
    monkeypatch.undo()
    network.add("a", 8, 100 * MBIT)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (("1", 2, MBIT), "'1' cannot name a tenant"),
        (("a.b", 2, MBIT), "'a.b' cannot name a tenant"),
        (("", 2, MBIT), "'' cannot name a tenant"),
        (("../x", 2, MBIT), "cannot name a tenant"),
        (("taken", 2, MBIT), "there is a tenant taken already"),
        (("a", 0, MBIT), "0 VMs: a live tenant has 1 to"),
        (("a", 5000, MBIT), "5000 VMs: a live tenant has 1 to"),
        (("a", 2, 0), "is above 0 bit/s"),
        (("a", 2, MBIT, "okto"), "unknown embedder 'okto'"),
        (
            ("a", 2, MBIT, None, [("server 9", 2)]),
            "unknown server 'server 9': server 0 to",
        ),
        (("a", 2, MBIT, None, [("rack 0", 2)]), "unknown server 'rack 0'"),
        (("a", 2, MBIT, None, [("9" * 5000, 2)]), "unknown server '9999"),
        (
            ("a", 2, MBIT, None, [("0", 1)]),
            "2 VMs are asked for, 1 are placed by hand",
        ),
        (("a", 2, MBIT, None, [("0", 2), ("1", 0)]), "are placed by hand"),
        (
            ("a", 2, MBIT, None, [], "work-conservin"),
            r"unknown enforcement 'work-conservin' \(did you mean 'work-conserving'\?\)",
        ),
    ],
)
def test_nonsense_gets_a_sentence(
    network: Network, request_: tuple[Any, ...], sentence: str
) -> None:
    network.add("taken", 1, MBIT)
    with pytest.raises(BadInput, match=sentence):
        network.tenants.add(AddTenant(*request_))
    assert network.names == ["taken"]


def test_a_tenant_is_enforced_as_it_asks_else_as_the_file_does(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, mode="work-conserving")
    states = [
        network.add("file", 2, 100 * MBIT, at=ACROSS),
        network.add("own", 2, 100 * MBIT, at=ACROSS, enforcement="strict"),
    ]
    assert [state.enforcement for state in states] == [
        "work-conserving",
        "strict",
    ]
    assert network.fake.borrowing == 0
    lent, strict = network.fake.admitted
    assert (lent.lent_bps, strict.lent_bps) == (GBIT * SCALE_RATE, 0)
    assert lent.link_bps == strict.link_bps
    assert lent.link_bps


def test_a_tenant_that_nothing_enforces_is_admitted_as_any_and_shares_what_is_left(
    network: Network,
) -> None:
    state = network.add("a", 2, 600 * MBIT, at=ACROSS, enforcement="none")
    assert state.enforcement == "none"
    assert network.fake.borrowing == 1
    assert network.fake.admitted[0].link_bps == ()
    assert state.links
    with pytest.raises(DoesNotFit):
        network.add("b", 2, 600 * MBIT, at=ACROSS)
    network.tenants.rerate("a", 100 * MBIT)
    network.tenants.remove("a")
    assert network.names == []


FILE = """
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
embedder: exact
policies: [easy, {name: fcfs, embedder: adaba}, vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""


@pytest.mark.parametrize(
    ("policy", "placing"),
    [
        (None, "exact"), ("vc", "exact"), ("fcfs", "adaba"), ("dcloud", "exact"),
        ("oktopus-batch", "exact"),
    ],
)  # fmt: skip
def test_a_policy_places_by_its_embedder(
    policy: str | None, placing: str
) -> None:
    assert (
        embedder_of(parse_experiment(FILE, Path("a.yaml")), policy)
        == placing
    )


@pytest.mark.parametrize("policy", ["jsa", "bl", "ps-p", "easy", "mbfcbs"])
def test_a_policy_without_an_embedder_cannot_place_a_tenant(
    policy: str,
) -> None:
    experiment = parse_experiment(FILE, Path("a.yaml"))
    with pytest.raises(
        BadInput, match=f"{policy} cannot place one tenant.*no embedder"
    ) as refused:
        embedder_of(experiment, policy)
    assert "vc" in str(refused.value.hint)
    with pytest.raises(
        BadInput, match=r"unknown policy 'vcc' \(did you mean 'vc'\?\)"
    ):
        embedder_of(experiment, "vcc")


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (("a", 9, MBIT), "not enough slots: 9 asked, 8 free"),
        (
            ("a", 3, MBIT, None, [("0", 3)]),
            "server 0: 3 slots asked, 2 free",
        ),
        (
            ("a", 1, 2 * GBIT),
            "2 Gbit/s asked per VM, no server's link has more than 1 Gbit/s",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    network: Network, request_: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(DoesNotFit, match=sentence):
        network.tenants.add(AddTenant(*request_))
    assert network.names == []


def test_unknown_tenants_are_named_with_those_that_there_are(
    network: Network,
) -> None:
    for verb in (network.tenants.state, network.tenants.remove):
        with pytest.raises(
            BadInput, match="unknown tenant 'web': there are none"
        ):
            verb("web")
    network.add("web-a", 1, MBIT)
    with pytest.raises(
        BadInput, match=r"unknown tenant 'web' \(did you mean 'web-a'\?\)"
    ):
        network.tenants.rerate("web", MBIT)


def test_by_hand_another_core_is_taken_where_the_first_is_full(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, fat_tree(4, GBIT, 2))
    across = [("server 0", 1), ("server 4", 1)]
    one = network.add("a", 2, 900 * MBIT, at=across)
    other = network.add("b", 2, 100 * MBIT, at=across)
    third = network.add("c", 2, 900 * MBIT, at=[("1", 1), ("5", 1)])
    first, second = (
        {k for k, _ in each.links if "core" in k} for each in (one, third)
    )
    assert first
    assert second
    assert not first & second
    assert network.names == ["a", "b", "c"]
    assert other.vms[0].server == "server 0"


def test_adaba_weighs_a_tenant_against_the_largest_so_far(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, tree([2], GBIT, 4))
    large = AddTenant("large", 3, 100 * MBIT, "adaba")
    small = AddTenant("small", 1, MBIT, "adaba")
    servers = []
    for request in (large, small):
        vms = network.tenants.add(request).vms
        servers.append({vm.server for vm in vms})
    # The slot that the large tenant leaves is the place for a small one.
    assert servers == [{"server 0"}, {"server 0"}]


def test_a_tenant_placed_by_hand_counts_as_the_largest_too(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, tree([2], GBIT, 4))
    network.add("large", 3, 100 * MBIT, at=[("0", 3)])
    small = network.tenants.add(AddTenant("small", 1, MBIT, "adaba"))
    assert small.vms[0].server == "server 0"


@pytest.fixture
def two_roots(tmp_path: Path) -> Network:
    """Three servers; the one in the middle is below both roots."""
    links = []
    for lower, upper in ("ax", "bx", "by", "cy"):
        links.append({"lower": lower, "upper": upper, "capacity": GBIT})
    content = {
        "servers": [{"name": name, "slots": 2} for name in "abc"],
        "switches": ["x", "y"],
        "links": links,
        "roots": ["x", "y"],
    }
    return Network(tmp_path, custom(content))


def test_by_hand_the_tree_is_one_that_connects_the_servers(
    two_roots: Network,
) -> None:
    full = [("b", 1), ("c", 3)]
    with pytest.raises(DoesNotFit, match=r"does not fit: c\b"):
        two_roots.add("t", 4, MBIT, at=full)
    placed = two_roots.add("t", 2, MBIT, at=[("b", 1), ("c", 1)])
    assert dict(placed.links).keys() >= {"b -> y", "y -> c"}


def test_by_hand_servers_that_no_tree_connects_are_refused(
    two_roots: Network,
) -> None:
    with pytest.raises(BadInput, match="no tree of links connects"):
        two_roots.add("t", 2, MBIT, at=[("a", 1), ("c", 1)])


def test_jobs_that_fit_become_tenants_and_of_the_others_the_reason_is_narrated(
    network: Network,
) -> None:
    jobs = [
        JobRequest("one", 0.0, 4, 100 * MBIT, 1.0),
        JobRequest("huge", 0.0, 8, 100 * MBIT, 1.0),
        JobRequest("two", 0.0, 4, 100 * MBIT, 1.0),
    ]
    lines: list[str] = []
    admit_jobs(network.tenants, jobs, lines.append)
    assert network.names == ["one", "two"]
    assert lines[0].startswith(
        "job huge is not admitted: tenant huge does not fit: "
    )
    assert lines[1] == "2 jobs are tenants, 1 not admitted"


# ------------------------------------------------------------------------------- open networks


@pytest.mark.parametrize(
    "datacentre", [tree([2, 2], [GBIT, GBIT], 2), fat_tree(4, GBIT, 1)]
)
def test_open_every_slot_is_a_host_and_nothing_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datacentre: DataCentre
) -> None:
    network = Network(tmp_path, datacentre)
    borrowing: list[bool] = []
    monkeypatch.setattr(
        network.fake.network,
        "allow_borrowing",
        lambda: borrowing.append(True),
    )
    network.tenants.open()
    (state,) = network.tenants.states()
    slots = network.fake.plan.slots
    assert [vm.name for vm in state.vms] == [
        f"h{i + 1}" for i in range(len(slots))
    ]
    assert [Path(vm.netns).name for vm in state.vms] == [
        slot.netns for slot in slots
    ]
    assert (state.enforcement, state.links, state.bandwidth_bps) == (
        "none",
        (),
        GBIT,
    )
    assert (
        f"{state.vms[-1].ip}\t{state.vms[-1].name}\n"
        in (tmp_path / "hosts.open").read_text()
    )
    assert borrowing == [True]
    plan = network.tenants.plans[0]
    assert plan.link_bps == ()
    assert not plan.unconnected
    # A path between any two: every server with a host is at an end of the tree that is pinned.
    assert {edge.lower.bridge for edge in plan.edges} >= {
        slot.port.bridge for slot in slots
    }
    network.tenants.ledger.check()


@pytest.mark.parametrize(
    ("datacentre", "sentence"),
    [
        (
            flat(4, 2),
            "no network connects all servers of this flat topology",
        ),
        (
            tree([8, 8], GBIT, 16),
            "1024 VM slots: an open network has at most 1021",
        ),
    ],
)
def test_what_cannot_be_open_is_refused(
    datacentre: DataCentre, sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        open_placement(datacentre)


@pytest.mark.parametrize(
    "asked",
    [
        AddTenant("a", 1, MBIT),
        RerateTenant("open", MBIT),
        RemoveTenant("open"),
    ],
)
def test_an_open_network_has_no_reservations_to_change(
    asked: KeeperRequest,
) -> None:
    anything: Any = None
    keeper = Keeper(StandingSetup(anything, anything, open=True), anything)
    with pytest.raises(
        BadInput, match="the network is open: all its slots"
    ) as refused:
        keeper._handle(asked)
    assert (
        refused.value.hint
        == "sudo testbed down, then sudo testbed up FILE without --open"
    )


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from("+-r"),
            st.integers(1, 9),
        )
    )
)
def test_whatever_is_asked_the_ledger_holds_what_is_on_the_network(
    tmp_path_factory: pytest.TempPathFactory,
    asked: list[tuple[str, str, int]],
) -> None:
    network = Network(tmp_path_factory.mktemp("hosts"))
    for name, verb, number in asked:
        try:
            if verb == "+":
                network.add(name, number, 100 * number * MBIT)
            elif verb == "-":
                network.tenants.remove(name)
            else:
                network.tenants.rerate(name, 150 * number * MBIT)
        except (BadInput, DoesNotFit):
            pass
    assert (
        set(network.names)
        == network.fake.here
        == set(network.tenants.ledger.holdings())
    )
    places = [
        (vm.netns, vm.ip) for s in network.tenants.states() for vm in s.vms
    ]
    assert (
        len({netns for netns, _ in places})
        == len({ip for _, ip in places})
        == len(places)
    )


def test_a_reply_that_the_keepers_death_cut_short_is_none() -> None:
    said: list[str] = []
    lines = [b'{"say": "network up"}\n', b'{"done": {"file": "a']
    assert _narrated(lines, said.append) == b""
    assert said == ["network up"]


def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    assert _user_name() == "4000000000"
