"""Hostile inputs for the product, each made of a seed, a kind and a number alone."""
