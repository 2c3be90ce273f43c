"""matplotlib as all figures use it: drawn without a screen, the same bytes from the same numbers."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

from holotype.errors import InputError


def pyplot() -> Any:
    """matplotlib, which only figures need, set to draw the same bytes each time."""
    try:
        import_module("matplotlib").use("Agg")
    except ImportError as error:
        raise InputError(
            "Figures need matplotlib, which is not installed: pip install matplotlib."
        ) from error
    plt = import_module("matplotlib.pyplot")
    plt.rcdefaults()
    plt.rcParams.update({"svg.hashsalt": "holotype", "svg.fonttype": "none", "font.size": 9})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    return plt


def drawn(figure: Any, dpi: int = 100) -> bytes:
    """The figure as SVG, without the date and the version that matplotlib would write into it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", dpi=dpi, metadata={"Date": None, "Creator": None})
    pyplot().close(figure)
    return stream.getvalue()
