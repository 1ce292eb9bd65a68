"""All that is reproduced of DCloud."""

from __future__ import annotations

from reproductions.dcloud.arrivals import FIGURE_8, FIGURE_9
from reproductions.dcloud.oversubscription import FIGURE_7
from reproductions.dcloud.parameters import FIGURE_4, FIGURE_5, FIGURE_6
from reproductions.dcloud.readings import BL_READINGS, REQUESTS
from reproductions.dcloud.strategies import CHARGING

DCLOUD_FIGURES = (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    FIGURE_9,
    CHARGING,
    BL_READINGS,
    REQUESTS,
)
