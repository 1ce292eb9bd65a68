"""All that is reproduced of AdaBa and BgMBF."""

from __future__ import annotations

from reproductions.adaba.acceptance import FIGURE_4, FIGURE_5
from reproductions.adaba.scheduling import FIGURE_6, FIGURE_7, FIGURE_8

ADABA_FIGURES = (FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8)
