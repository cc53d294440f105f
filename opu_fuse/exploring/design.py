"""The parameters of a machine that a search varies, from which a whole spec follows."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields

from opu_fuse.errors import SpecError
from opu_fuse.hw.area.devices import Device
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text
from opu_fuse.units import UNITS
from opu_fuse.units.base import ModuleKind

NAME = "design"
BASE = str(Path(__file__).parent / "every-unit.yaml")
"""The machine that has every kind of module; a design leaves some out."""

_PRE = ("mul_pre", "se_pre", "compare_pre")


def _modules_of(kind: ModuleKind) -> tuple[str, ...]:
    """The modules of a kind in the graph of `BASE`, without those before the array."""
    modules = load_hw(BASE).dataflow.modules.items()
    return tuple(name for name, m in modules if m.kind is kind and name not in _PRE)


OPTIONS: Mapping[str, tuple[str, ...]] = {"pre": _PRE} | {
    option: _modules_of(kind) for unit in UNITS for kind, option in unit.options.items()
}
"""Optional feature of a machine -> its modules in the graph of `BASE`."""

PRE_WORDS = 256
"""Words of each bank of the parameter buffer before the array, in every proposal."""
LATENCY = 40
"""Cycles of a board's memory."""


class Design(Struct, frozen=True, kw_only=True):
    """The parameters of a machine. Words are those of `HwSpec.buffers`, both banks.

    lanes: of the post chain.
    pixels: of the widest mode.
    modes: number of array modes, those with most input channels and fewest pixels first; 0: all
    that the array's shape allows.
    shifts: powers of two instead of multipliers.
    without: names in `OPTIONS`.
    tables: products of a unit in tables.
    side_lanes: of units with a second operand, 0 for as many as `lanes`.
    side_tables: their products in tables.
    image: words of the image buffer, 0 for none.
    """

    word: int
    lanes: int
    units: int
    multipliers: int
    pixels: int
    depthwise: bool
    shifts: bool
    bus: int
    width: int
    feature: int
    weight: int
    param: int
    residual: int
    psum: int
    output: int
    queue: int
    without: tuple[str, ...]
    modes: int = 0
    tables: int = 0
    side_lanes: int = 0
    side_tables: bool = False
    image: int = 0

    def tree(self) -> dict[str, Any]:
        """The spec as nested dicts, not validated."""
        tree = load_hw(BASE).to_tree()
        buffers: dict[str, Any] = {
            field: {"words": getattr(self, field), "banks": 2}
            for field in ("feature", "weight", "param", "residual", "psum", "output")
        }
        buffers["weight"]["width"] = self.width
        if {"residual", "gates"} <= set(self.without):
            buffers["residual"] = {"words": 2, "banks": 1}
        buffers["pre"] = None if "pre" in self.without else {"words": PRE_WORDS, "banks": 2}
        buffers["image"] = {"words": self.image, "banks": 1} if self.image else None
        for buffer, option in (("table", "tables"), ("norm", "norms")):
            buffers[buffer] = None if option in self.without else tree["buffers"][buffer]
        return tree | {
            "name": NAME,
            "description": f"{self.units * self.multipliers} MAC per cycle, "
            f"{self.word}-channel words",
            "word_channels": self.word,
            "array": {
                "units": self.units,
                "multipliers": self.multipliers,
                "table_terms": self.tables,
                "depthwise": self.depthwise,
                "modes": list(islice(self.all_modes(), self.modes or None)),
            },
            "buffers": buffers,
            "post": tree["post"]
            | {
                "lanes": self.lanes,
                "residual_lanes": self.side_lanes or None,
                "residual_tables": self.side_tables,
            },
            "queues": dict.fromkeys(tree["queues"], self.queue),
            "dram": tree["dram"] | {"bus_bytes": self.bus, "bytes_per_cycle": float(self.bus)},
            "numeric": tree["numeric"] | ({"multiplier_bits": 0} if self.shifts else {}),
            "dataflow": _without(tree["dataflow"], self.without),
        }

    def spec(self, board: Device | None = None) -> HwSpec | None:
        """The machine, on a board or with the memory of `BASE`; None where the numbers give
        none.
        """
        tree = self.tree()
        if board is not None:
            tree = on_board(tree, board)
        try:
            return load_hw_text(json.dumps(tree), NAME)
        except SpecError:
            return None

    def all_modes(self) -> Iterator[dict[str, int]]:
        """Every way to wire the array for this word (the rules are those of
        `hw/spec/check_rtl.py`).
        """
        macs, word = self.units * self.multipliers, self.word
        for px in (1, 2, 4):
            if px > self.pixels or self.units % px:
                return
            ic = min(word, macs // px)
            while ic >= self.multipliers:
                oc, rest = divmod(macs, ic * px)
                inside = px == 1 or px * max(ic, oc) <= word
                whole = not rest and oc and not word % ic and not word % oc
                if whole and inside and not ic * oc % self.width:
                    yield {"ic": ic, "oc": oc, "px": px}
                ic //= 2

    def __str__(self) -> str:
        """All parameters by name, without those at their default."""
        values = asdict(self) | {"without": "+".join(self.without) or "-"}
        usual = {field.name: field.default for field in fields(self)}
        return " ".join(
            f"{key}={value:d}" if isinstance(value, bool | int) else f"{key}={value}"
            for key, value in values.items()
            if value != usual[key]
        )

    @classmethod
    def parse(cls, text: str) -> "Design":
        """The inverse of `str`."""
        values: dict[str, Any] = dict(part.split("=") for part in text.split())
        without = values.pop("without")
        whole = {key: int(value) for key, value in values.items()}
        switches = whole.keys() & {"depthwise", "shifts", "side_tables"}
        flags = {key: bool(whole[key]) for key in switches}
        names = () if without == "-" else tuple(without.split("+"))
        fields: dict[str, Any] = {**whole, **flags}
        return cls(**fields, without=names)


WHOLE = Design(
    word=64,
    lanes=64,
    units=32,
    multipliers=16,
    pixels=2,
    depthwise=True,
    shifts=False,
    bus=64,
    width=64,
    feature=4096,
    weight=1024,
    param=1024,
    residual=1024,
    psum=2048,
    output=1024,
    queue=512,
    without=(),
)
"""As `BASE`: every module, and room for every network that any machine runs."""


def on_board(tree: dict[str, Any], board: Device) -> dict[str, Any]:
    """A spec's tree at the clock and with the memory of a board."""
    dram = tree["dram"]
    speed = min(board.memory_bytes / board.clock_mhz / 1e6, 2 * dram["bus_bytes"])
    return tree | {
        "clock_mhz": board.clock_mhz,
        "clock_on": None,  # no machine was measured at it
        "dram": dram | {"bytes_per_cycle": speed, "latency": LATENCY},
    }


def _without(flow: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    """A data flow without the modules of some options, and the operators that nothing runs then."""
    gone = {name for option in without for name in OPTIONS[option]}
    modules = {name: module for name, module in flow["modules"].items() if name not in gone}
    kinds = {module["kind"] for module in modules.values()}
    operators = {op: [k for k in of if k in kinds] for op, of in flow["operators"].items()}
    return flow | {
        "modules": modules,
        "edges": {
            name: [target for target in targets if target not in gone]
            for name, targets in flow["edges"].items()
            if name not in gone
        },
        "operators": {op: of for op, of in operators.items() if of},
    }
