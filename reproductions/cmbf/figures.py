"""All of CMBF's figures, for the registry."""

from __future__ import annotations

from reproductions.cmbf.consolidation import FIGURE_3, FIGURE_4
from reproductions.cmbf.studies import CAPACITY, CPU_ESTIMATE, MIGRATION_COST

CMBF_FIGURES = (FIGURE_3, FIGURE_4, CPU_ESTIMATE, MIGRATION_COST, CAPACITY)
