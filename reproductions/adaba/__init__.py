"""AdaBa's acceptance (Figures 4, 5) and BgMBF's scheduling (Figures 6 to 8),
simulated and live, and both under other interpretations.
"""

from reproductions.adaba.adaba_acceptance import FIGURE_4, FIGURE_5
from reproductions.adaba.adaba_anywhere import OTHERS_ANYWHERE
from reproductions.adaba.adaba_interpretations import (
    INTERPRETATIONS_OF_ADABA,
    INTERPRETATIONS_OF_BGMBF,
    LOGS_OF_ADABA,
)
from reproductions.adaba.adaba_live import FIGURE_4_LIVE
from reproductions.adaba.bgmbf_live import KTH_LIVE
from reproductions.adaba.bgmbf_scheduling import (
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
)

FIGURES = (
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    INTERPRETATIONS_OF_ADABA,
    LOGS_OF_ADABA,
    INTERPRETATIONS_OF_BGMBF,
    OTHERS_ANYWHERE,
)
LIVE_FIGURES = (FIGURE_4_LIVE, KTH_LIVE)
