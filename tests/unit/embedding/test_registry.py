import pytest

from testbed.embedding.base import embedder, embedder_names
from testbed.errors import BadInput


def test_every_name_makes_the_embedder_of_that_name() -> None:
    assert embedder_names() == (
        "adaba",
        "best-fit",
        "exact",
        "first-fit",
        "greedy",
        "oktopus",
        "vmplace",
    )
    assert [embedder(name).name for name in embedder_names()] == list(
        embedder_names()
    )


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInput) as caught:
        embedder("octopus")
    assert caught.value.message == (
        "unknown embedder 'octopus' (did you mean 'oktopus'?); known: adaba, best-fit, exact,"
        " first-fit, greedy, oktopus, vmplace"
    )
