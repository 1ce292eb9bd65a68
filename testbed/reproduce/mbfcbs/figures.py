"""MBFCBS's figures (Section 5), in their order."""

from __future__ import annotations

from testbed.reproduce.figure import Figure
from testbed.reproduce.mbfcbs.cluster import FIGURE_4, FIGURE_5
from testbed.reproduce.mbfcbs.simulated import (
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
)

MBFCBS_FIGURES: tuple[Figure, ...] = (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
)
