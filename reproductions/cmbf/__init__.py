"""CMBF's simulations (Figures 3, 4, Section 5.4), worked examples and
measurement of two VMs.
"""

from reproductions.cmbf.cmbf_consolidation import FIGURE_3, FIGURE_4
from reproductions.cmbf.cmbf_examples import EXAMPLE_1, EXAMPLE_2
from reproductions.cmbf.cmbf_interference import STUDY
from reproductions.cmbf.cmbf_studies import (
    CAPACITY,
    CPU_ESTIMATE,
    MIGRATION_COST,
)
from reproductions.cmbf.cmbf_waiting import WAITING

FIGURES = (
    FIGURE_3,
    FIGURE_4,
    CPU_ESTIMATE,
    MIGRATION_COST,
    CAPACITY,
    WAITING,
)
LIVE_FIGURES = (EXAMPLE_1, EXAMPLE_2, STUDY)
