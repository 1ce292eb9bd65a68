"""Random examples of hypothesis that are the same in every program."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def same_examples() -> Generator[None, None, None]:
    """Keeps hypothesis from trying numbers that stand in the code of the
    modules that are loaded: other ones after each edit, and in each program.
    """
    from hypothesis.internal import constants_ast
    from hypothesis.internal.conjecture import providers

    # Made where this version of hypothesis has no such names: then there is
    # nothing to keep it from.
    with (
        patch.multiple(
            providers.HypothesisProvider,
            _local_constants=constants_ast.Constants(),
            create=True,
        ),
        patch.object(providers, "CONSTANTS_CACHE", {}, create=True),
    ):
        yield
