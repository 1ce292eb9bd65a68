"""All that is reproduced of DCloud."""

from __future__ import annotations

from testbed.reproduce.dcloud.arrivals import FIGURE_8, FIGURE_9
from testbed.reproduce.dcloud.oversubscription import FIGURE_7
from testbed.reproduce.dcloud.parameters import FIGURE_4, FIGURE_5, FIGURE_6
from testbed.reproduce.dcloud.readings import BL_READINGS, REQUESTS
from testbed.reproduce.dcloud.strategies import CHARGING

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
