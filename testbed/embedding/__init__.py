"""Placements of a hose in a data centre, one module per embedder; pure."""
