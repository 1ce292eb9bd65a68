"""Hosenet: bandwidth-reserving data-centre schedulers on an emulated, real network."""
