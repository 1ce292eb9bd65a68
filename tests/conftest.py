"""Common ground of all tests: tiers by folder, feature probes, names of its own, no left-overs.

A test's folder is its tier. ``tests/unit`` needs nothing; ``tests/netns`` needs root and network
namespaces; ``tests/emu`` needs Open vSwitch beside them. What the machine lacks is found out by
trying, and a test that cannot run is skipped with that reason. Where a skip would hide a broken
installation, ``HOSENET_TEST_REQUIRE`` (feature names, separated by blanks) turns it into a failure:
``provision.sh test`` sets it.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import importlib.util
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser import lacks_browser
from tests.support.control_groups import control_groups
from tests.support.examples import QUICK

# A shell's background jobs ignore Ctrl-C, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A login's usual 1,024 open files are too few for both ends of a thousand connections.
_most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))

# How long an example takes says nothing about the code: tests never depend on the clock.
settings.register_profile(
    "hosenet", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# The short form takes fewer examples, by --hypothesis-profile.
settings.register_profile(
    "quick", settings.get_profile("hosenet"), max_examples=QUICK
)
settings.load_profile("hosenet")

TESTS = Path(__file__).parent
TIER_NEEDS = {
    "unit": (),
    "netns": ("root", "namespaces"),
    "emu": ("root", "namespaces", "ovs"),
}
REQUIRE_VARIABLE = "HOSENET_TEST_REQUIRE"
LIVE_LOCK = Path("/run/lock/hosenet-tests.lock")
PREFIX_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


# ------------------------------------------------------------------------------ feature probes


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _lacks_root() -> str | None:
    return None if os.geteuid() == 0 else "not root"


def _lacks_namespaces() -> str | None:
    name = f"t{secrets.token_hex(3)}"
    try:
        made = _run("ip", "netns", "add", name)
    except FileNotFoundError:
        return "no ip command (Debian: iproute2)"
    if made.returncode != 0:
        return f"no network namespaces: {made.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return None


def _lacks_ovs() -> str | None:
    try:
        shown = _run("ovs-vsctl", "--timeout=20", "show")
    except FileNotFoundError:
        return "no Open vSwitch (sudo ./provision.sh install)"
    if shown.returncode != 0:
        return f"Open vSwitch is not running (sudo ./provision.sh install): {shown.stderr.strip()}"
    if _run("ovs-appctl", "--timeout=20", "version").returncode != 0:
        return "ovs-vswitchd does not answer (sudo ./provision.sh install)"
    return None


def _lacks_kernel_datapath() -> str | None:
    if Path("/sys/module/openvswitch").exists():
        return None
    return "the kernel's openvswitch module is not loaded"


def _lacks_userspace_datapath() -> str | None:
    return (
        None
        if _lacks_kernel_datapath()
        else "the kernel's openvswitch module is loaded"
    )


def _lacks_cgroup_v2() -> str | None:
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return None
    return "no cgroup v2 at /sys/fs/cgroup"


def _lacks_netem() -> str | None:
    line = [
        "tc",
        "qdisc",
        "add",
        "dev",
        "lo",
        "root",
        "netem",
        "delay",
        "1ms",
    ]
    if _run("unshare", "--net", *line).returncode == 0:
        return None
    return "the kernel has no netem"


def _lacks_module(name: str) -> Callable[[], str | None]:
    return lambda: (
        None if importlib.util.find_spec(name) else f"Python has no {name}"
    )


def _lacks_prometheus() -> str | None:
    if shutil.which("prometheus"):
        return None
    return "no prometheus (Debian: prometheus)"


PROBES: dict[str, Callable[[], str | None]] = {
    "root": _lacks_root,
    "namespaces": _lacks_namespaces,
    "ovs": _lacks_ovs,
    "kernel-datapath": _lacks_kernel_datapath,
    "userspace-datapath": _lacks_userspace_datapath,
    "cgroup-v2": _lacks_cgroup_v2,
    "netem": _lacks_netem,
    "mininet": _lacks_module("mininet"),
    "ryu": _lacks_module("ryu"),
    "os-ken": _lacks_module("os_ken"),
    "browser": lacks_browser,
    "prometheus": _lacks_prometheus,
}


@cache
def lacking(feature: str) -> str | None:
    """Why the machine lacks ``feature``, or None where it has it. Tried once per session."""
    return PROBES[feature]()


# --------------------------------------------------------------------------------------- tiers


def _tier(item: pytest.Item) -> str:
    folders = item.path.relative_to(TESTS).parts[:-1]
    if not folders or folders[0] not in TIER_NEEDS:
        raise pytest.UsageError(
            f"{item.path}: a test belongs in one of the tiers {', '.join(sorted(TIER_NEEDS))}"
        )
    return folders[0]


def _only_with_all(item: pytest.Item) -> bool:
    """True for a parameter set that ``short`` does not name."""
    marker = item.get_closest_marker("short")
    parameters = getattr(item, "callspec", None)
    if marker is None or parameters is None:
        return False
    return not parameters.id.startswith(marker.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _only_with_all(item):
            item.add_marker(pytest.mark.long)
        if (
            TESTS not in item.path.parents
            or "vm" in item.path.relative_to(TESTS).parts
        ):
            continue
        tier = _tier(item)
        if tier != "unit":
            item.add_marker(getattr(pytest.mark, tier))
        if tier == "emu":
            item.add_marker(pytest.mark.xdist_group("emu"))
        if TIER_NEEDS[tier]:
            # First, so that a tier's own lack is the reason shown.
            item.add_marker(
                pytest.mark.needs(*TIER_NEEDS[tier]), append=False
            )


# Modules and tests stay to the end: collections would walk a million objects of theirs, again and
# again while they are imported, and with each test. The little garbage among them stays too.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for feature in marker.args:
            reason = lacking(feature)
            if reason is None:
                continue
            if feature in os.environ.get(REQUIRE_VARIABLE, "").split():
                pytest.fail(
                    f"{REQUIRE_VARIABLE} names {feature}: {reason}",
                    pytrace=False,
                )
            pytest.skip(reason)


# The live network is one per machine: two test sessions take turns. The lock is taken outside the
# test's own time limit (hence a wrapper around everything) and held until the process ends, as
# fixtures may keep a network up from one emu test to the next.
_held: list[int] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item,
) -> Generator[None, object, object]:
    if not _held and item.get_closest_marker("emu") and os.geteuid() == 0:
        descriptor = os.open(
            LIVE_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _held.append(descriptor)
    return (yield)


# ---------------------------------------------------------------------- names, and their removal


def left_behind(prefix: str) -> list[str]:
    """Everything here that still bears ``prefix``: namespaces, links, bridges, cgroups."""
    found = []
    for kind, folder in (
        ("namespace", "/run/netns"),
        ("link", "/sys/class/net"),
    ):
        with suppress(FileNotFoundError):
            found += [
                f"{kind} {e.name}"
                for e in Path(folder).iterdir()
                if _ours(e.name, prefix)
            ]
    if os.geteuid() == 0 and lacking("ovs") is None:
        bridges = _run(
            "ovs-vsctl", "--timeout=50", "list-br"
        ).stdout.split()
        found += [
            f"bridge {name}" for name in bridges if _ours(name, prefix)
        ]
    found += [
        f"cgroup {group}"
        for group in control_groups(levels=3)
        if _ours(group.name, prefix)
    ]
    return sorted(found)


def _ours(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(
        (f"{prefix}-", f"{prefix}_", f"{prefix}.")
    )


def _remove(found: list[str]) -> None:
    for kind, _, name in (entry.partition(" ") for entry in found):
        if kind == "namespace":
            _run("ip", "netns", "delete", name)
        elif kind == "bridge":
            _run("ovs-vsctl", "--timeout=50", "--if-exists", "del-br", name)
    for kind, _, name in (entry.partition(" ") for entry in found):
        if kind == "link":
            _run("ip", "link", "delete", name)
        elif kind == "cgroup":
            with suppress(OSError):
                Path(name).rmdir()


def _claimed(prefix: str) -> socket.socket | None:
    """A socket that stands for a prefix; None if another one does.

    It has a name and no file, and goes with its process, however that ends.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0hosenet-tests-{prefix}")
    except OSError as error:
        claim.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return claim


@pytest.fixture(scope="session")
def make_prefix() -> Iterator[Callable[[], str]]:
    """Names nobody else has, at most four characters; at the session's end none may be in use.

    Tests in network namespaces run beside those on Open vSwitch, and networks of whole files beside
    their tests: of 46,656 names two of these would be alike in one of a hundred runs of all tests,
    and each would then find, and remove, the other's.
    """
    given: list[str] = []

    def make() -> str:
        while True:
            # Not from `random`: it is seeded alike in every worker.
            prefix = "t" + "".join(
                secrets.choice(PREFIX_ALPHABET) for _ in range(3)
            )
            claim = _claimed(prefix)
            if claim is not None:
                claims.enter_context(claim)
                given.append(prefix)
                return prefix

    with ExitStack() as claims:
        yield make
        found = [entry for prefix in given for entry in left_behind(prefix)]
        _remove(found)
    if found:
        pytest.fail(
            f"left behind at the session's end: {', '.join(found)}",
            pytrace=False,
        )


@pytest.fixture
def prefix(make_prefix: Callable[[], str]) -> Iterator[str]:
    """This test's own prefix for everything it makes; the test fails if it leaves any of it."""
    own = make_prefix()
    yield own
    found = left_behind(own)
    _remove(found)
    if found:
        pytest.fail(f"left behind: {', '.join(found)}", pytrace=False)
