"""The papers' evaluations again: grids of simulated runs, figures, and a verdict per claim.

A *figure* (:mod:`testbed.reproduce.figure`) is data: what is swept, which series, which measures,
which claims. A *cell* (:mod:`testbed.reproduce.cell`) is one run behind it; each paper brings its
own kind of cell in a package of its own, and a line in :mod:`testbed.reproduce.registry`.
"""
