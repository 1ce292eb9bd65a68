"""MBFCBS's figures (Section 5), in their order."""

from __future__ import annotations

from reproductions.figure import Figure
from reproductions.mbfcbs.cluster import FIGURE_4, FIGURE_5
from reproductions.mbfcbs.simulated import (
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
