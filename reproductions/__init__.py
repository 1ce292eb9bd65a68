"""The papers' evaluations again: grids of simulated runs, figures, and a
verdict per claim.

A figure (:mod:`reproductions.published_figure`) is data: its sweep, series,
measures and claims. A run configuration (:mod:`reproductions.configuration`) is
one run behind it. Each paper has a package of its own, which
:mod:`reproductions.catalogue` lists.
"""
