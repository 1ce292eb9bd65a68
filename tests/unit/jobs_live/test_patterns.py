"""Patterns: every VM sends and receives exactly its volume, nobody talks to itself."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.live.patterns import VmTransfer, transfers

PATTERNS = ("ring", "permutation", "all-to-all")
VMS = st.integers(2, 40)
VOLUMES = st.integers(1, 10**13)
SEEDS = st.integers(0, 2**32)


@settings(deadline=None)
@given(st.sampled_from(PATTERNS), VMS, VOLUMES, SEEDS)
def test_every_vm_sends_and_receives_exactly_its_volume(
    pattern: str, n_vms: int, volume_bytes: int, seed: int
) -> None:
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    pairs = set()
    for transfer in transfers(pattern, n_vms, volume_bytes, Random(seed)):
        assert transfer.sender != transfer.receiver
        assert transfer.size_bytes > 0
        sent[transfer.sender] += transfer.size_bytes
        received[transfer.receiver] += transfer.size_bytes
        pairs.add((transfer.sender, transfer.receiver))
    everyone = dict.fromkeys(range(n_vms), volume_bytes)
    assert sent == everyone
    assert received == everyone
    assert len(pairs) == len(
        transfers(pattern, n_vms, volume_bytes, Random(seed))
    )


@settings(deadline=None)
@given(VMS, VOLUMES)
def test_an_all_to_all_differs_by_a_byte_at_most(
    n_vms: int, volume_bytes: int
) -> None:
    sizes = [
        t.size_bytes
        for t in transfers("all-to-all", n_vms, volume_bytes, Random(0))
    ]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(VMS, SEEDS)
def test_the_same_seed_gives_the_same_permutation(
    n_vms: int, seed: int
) -> None:
    first = transfers("permutation", n_vms, 10, Random(seed))
    assert first == transfers("permutation", n_vms, 10, Random(seed))


def test_three_vms_have_two_permutations_without_fixed_point_and_both_come_up() -> (
    None
):
    drawn = Counter(
        tuple(
            t.receiver for t in transfers("permutation", 3, 1, Random(seed))
        )
        for seed in range(200)
    )
    assert set(drawn) == {(1, 2, 0), (2, 0, 1)}
    assert min(drawn.values()) > 60


def test_a_ring_of_three() -> None:
    assert transfers("ring", 3, 7, Random(0)) == (
        VmTransfer(0, 1, 7),
        VmTransfer(1, 2, 7),
        VmTransfer(2, 0, 7),
    )


def test_nothing_to_send_is_no_transfer() -> None:
    assert all(
        transfers(pattern, 4, 0, Random(0)) == () for pattern in PATTERNS
    )
