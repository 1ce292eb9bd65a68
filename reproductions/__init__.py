"""The papers' evaluations again: grids of simulated runs, figures, and a
verdict per claim.

A *figure* (:mod:`reproductions.figure`) is data: what is swept, which series,
which measures, which claims. A *cell* (:mod:`reproductions.cell`) is one run
behind it; each paper brings its own kind of cell in a package of its own, and a
line in :mod:`reproductions.registry`.
"""
