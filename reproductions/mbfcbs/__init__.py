"""MBFCBS's simulations (Figures 4 to 11), other priorities and Haizea's traces,
and its small cluster live.
"""

from reproductions.mbfcbs.mbfcbs_interpretations import (
    HAIZEA,
    PRIORITIES,
    SHARES_OF_ADVANCE,
)
from reproductions.mbfcbs.mbfcbs_leases import (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
)
from reproductions.mbfcbs.mbfcbs_live import LEASES

FIGURES = (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    FIGURE_10,
    FIGURE_11,
    PRIORITIES,
    HAIZEA,
    SHARES_OF_ADVANCE,
)
LIVE_FIGURES = (LEASES,)
