"""JSA's simulations (Figure 4), its testbed (Figure 5), and its distance from
the optimum.
"""

from reproductions.jsa.jsa_deadlines import DEADLINES
from reproductions.jsa.jsa_interpretations import (
    INTERPRETATIONS_OF_JSA,
    LARGE_INTERPRETATIONS_OF_JSA,
)
from reproductions.jsa.jsa_live import (
    FIGURE_5A,
    FIGURE_5B,
    FIGURE_5C,
    FIGURE_5D,
)
from reproductions.jsa.jsa_optimality import OPTIMALITY
from reproductions.jsa.jsa_rewards import (
    FIGURE_4A,
    FIGURE_4B,
    FIGURE_4C,
    FIGURE_4D,
)

FIGURES = (
    FIGURE_4A,
    FIGURE_4B,
    FIGURE_4C,
    FIGURE_4D,
    OPTIMALITY,
    INTERPRETATIONS_OF_JSA,
    LARGE_INTERPRETATIONS_OF_JSA,
    DEADLINES,
)
LIVE_FIGURES = (FIGURE_5A, FIGURE_5B, FIGURE_5C, FIGURE_5D)
