"""A matplotlib figure that a notebook shows by itself, without pyplot."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

DPI = 96


class ShownFigure(Figure):
    """A figure that a notebook shows in its final state."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=DPI)
        return out.getvalue()
