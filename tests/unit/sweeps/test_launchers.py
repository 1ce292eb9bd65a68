"""Dask's launchers: how they are called, and what is said where one is missing or fails."""

from __future__ import annotations

import socket
import sys
from types import ModuleType
from typing import Any

import pytest

from testbed.errors import BadInput, MachineCannot
from testbed.sweeps import launchers
from testbed.sweeps.cluster import executor


class FakeCluster:
    """Stands in for a launcher's class, and writes down what is done with it."""

    made: list[FakeCluster]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.calls: list[Any] = [(arguments, options)]
        self.made.append(self)

    def scale(self, workers: int) -> None:
        self.calls.append(("scale", workers))

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeCluster]:
    clusters: list[FakeCluster] = []
    monkeypatch.setattr(FakeCluster, "made", clusters, raising=False)
    for module, name in (
        ("dask_jobqueue", "SLURMCluster"),
        ("dask_kubernetes", ""),
        ("dask_kubernetes.operator", "KubeCluster"),
        ("asyncssh", ""),
        ("distributed", "SSHCluster"),
    ):
        fake = ModuleType(module)
        setattr(fake, name, FakeCluster)
        monkeypatch.setitem(sys.modules, module, fake)
    return clusters


@pytest.mark.parametrize(
    "launcher", [launchers.SLURM, launchers.KUBERNETES]
)
def test_a_cluster_is_asked_for_workers_and_closed(
    made: list[FakeCluster], launcher: launchers.Launcher
) -> None:
    with launchers.scaled(launcher, 12) as cluster:
        assert cluster.calls == [((), {}), ("scale", 12)]
    [cluster] = made
    assert cluster.calls[-1] == "closed"


def test_workers_are_shared_out_among_hosts(
    made: list[FakeCluster],
) -> None:
    with launchers.on_hosts(launchers.hosts_of("ssh:n1, n2,n3"), 7):
        pass
    [cluster] = made
    options = {"worker_options": {"nthreads": 1, "n_workers": 3}}
    assert cluster.calls == [
        ((["n1", "n1", "n2", "n3"],), options),
        "closed",
    ]


@pytest.mark.parametrize(
    ("cluster", "package", "extra"),
    [
        ("slurm", "dask_jobqueue", "slurm"),
        ("kubernetes", "dask_kubernetes", "kubernetes"),
        ("ssh:a,b", "asyncssh", "ssh"),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, cluster: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MachineCannot) as refusal:
        executor(cluster, 2, print).__enter__()
    assert (
        refusal.value.message
        == f"--cluster {extra} needs the Python package {package!r}"
    )
    assert refusal.value.hint == f"pip install 'hosenet[{extra}]'"


def test_a_launcher_that_fails_is_one_sentence(
    made: list[FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: FakeCluster, *arguments: Any, **options: Any) -> None:
        raise ValueError(
            "You must specify how much cores per job you want, for example:\nmore"
        )

    monkeypatch.setattr(FakeCluster, "__init__", fails)
    with pytest.raises(MachineCannot) as refusal:
        executor("slurm", 2, print).__enter__()
    assert refusal.value.message == (
        "Dask's SLURMCluster does not start: You must specify how much cores per job you want,"
        " for example"
    )
    assert "docs/clusters.md" in str(refusal.value.hint)


@pytest.mark.parametrize("cluster", ["ssh:", "ssh:a,,b"])
def test_hosts_are_named(cluster: str) -> None:
    with pytest.raises(BadInput, match="names no host"):
        executor(cluster, 2, print)


@pytest.mark.parametrize(
    "cluster", ["", "http://a:1", "pbs", "10.0.0.1:8786"]
)
def test_what_is_no_cluster(cluster: str) -> None:
    with pytest.raises(BadInput, match="is no cluster") as refusal:
        executor(cluster, 2, print)
    assert "slurm" in str(refusal.value.hint)


@pytest.mark.parametrize(
    "cluster",
    [
        "tcp://",
        "tcp://a",
        "tcp://:1",
        "tcp://a:",
        "tcp://a:b",
        "tcp://a:70000",
        "tls://a",
    ],
)
def test_what_is_no_address(cluster: str) -> None:
    with pytest.raises(
        BadInput, match="is no address of a Dask scheduler"
    ) as refusal:
        executor(cluster, 2, print)
    assert "tcp://HOST:PORT" in str(refusal.value.hint)


def test_an_address_with_tls_needs_keys() -> None:
    with pytest.raises(BadInput, match="needs keys") as refusal:
        executor("tls://127.0.0.1:9", 2, print).__enter__()
    assert "distributed.comm.tls" in str(refusal.value.hint)


def test_a_server_that_is_no_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes the connection and says nothing."""
    monkeypatch.setattr("testbed.sweeps.cluster.ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            BadInput, match="no Dask scheduler answers at tcp://"
        ):
            executor(address, 2, print).__enter__()
