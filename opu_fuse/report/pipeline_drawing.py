"""The machine's pipeline, coloured by what a run used."""

from collections.abc import Iterable, Mapping
from typing import Any

from opu_fuse.hw.spec.draw import draw_svg
from opu_fuse.hw.spec.hw_spec import HwSpec

_BOUNDING, _BUSY = "#f5b7b1", "#d6eaf8"


def pipeline_svg(hw: HwSpec, modules: Iterable[Mapping[str, Any]]) -> str:
    """SVG with the share of all cycles in which each module works, red where it bounds. modules:
    the trees of `RunFigures.modules`.
    """
    used = {m["name"]: m for m in modules if m["busy_cycles"]}
    return draw_svg(
        hw,
        {name: _BOUNDING if m["bounds"] else _BUSY for name, m in used.items()},
        {name: f"{100 * m['busy_share']:.1f} %" for name, m in used.items()},
    )
