"""DCloud's simulations (Figures 4 to 9, pricing) and its testbed (Figures 10 and
11).
"""

from reproductions.dcloud.dcloud_arrivals import (
    BL_INTERPRETATIONS,
    FIGURE_8,
    FIGURE_9,
    REQUESTS,
    REVENUE_INTERPRETATIONS,
)
from reproductions.dcloud.dcloud_causes import (
    HALVES,
    INDEX_BY_LOAD,
    LEAD_WITH_ROOM,
    LEAST_BY_DAY,
    LEAST_IN_A_BATCH,
    SPLITS_OF_A_RATIO,
)
from reproductions.dcloud.dcloud_live import (
    FIGURE_11,
    FIGURE_11_FAT_TREE,
)
from reproductions.dcloud.dcloud_pricing import CHARGING
from reproductions.dcloud.dcloud_profiles import PROFILES
from reproductions.dcloud.dcloud_scaling import FIGURES_10
from reproductions.dcloud.dcloud_sweeps import (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
)

FIGURES = (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    CHARGING,
    BL_INTERPRETATIONS,
    REQUESTS,
    PROFILES,
    REVENUE_INTERPRETATIONS,
    SPLITS_OF_A_RATIO,
    HALVES,
    INDEX_BY_LOAD,
    LEAD_WITH_ROOM,
    LEAST_IN_A_BATCH,
    LEAST_BY_DAY,
)
LIVE_FIGURES = (*FIGURES_10, FIGURE_11, FIGURE_11_FAT_TREE)
