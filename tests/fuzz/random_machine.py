"""Random machines: sizes that fit each other, and a random data-flow graph."""

import math
from typing import Any

import numpy as np
import yaml

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text
from tests.fuzz.mutations import one_of, rng_of
from tests.fuzz.random_graph import Tree, draw_dataflow

NAME = "drawn"
LEAST_MACS, MOST_MACS = 16, 128
"""Of an array, so that programs are short and its simulator is built soon."""
_MARK = 0x3A7E


def draw_machine(seed: int, *, multipliers: bool) -> str:
    """The YAML of the first machine of a seed that `hw check` accepts. multipliers: it can take
    scales that are no powers of two.
    """
    for attempt in range(50):
        text = attempted(seed, attempt, multipliers=multipliers)
        try:
            load_hw_text(text)
        except SpecError:
            continue
        return text
    raise AssertionError(f"seed {seed}: no machine that `hw check` accepts")


def attempted(seed: int, attempt: int, *, multipliers: bool = True) -> str:
    """The YAML of a machine, accepted or not."""
    return dumped(_tree(rng_of(seed, attempt, _MARK), multipliers=multipliers))


def dumped(tree: Tree) -> str:
    return yaml.safe_dump(tree, sort_keys=False, width=100)


def machine_of(text: str) -> HwSpec:
    """Raises SpecError."""
    return load_hw_text(text)


def _tree(rng: np.random.Generator, *, multipliers: bool) -> Tree:
    flow = draw_dataflow(rng)
    word = int(one_of(rng, (8, 8, 8, 16, 24)))
    array, rows = _array(rng, word)
    bus = int(one_of(rng, [n for n in (4, 8, 16) if n <= word and math.gcd(*rows) % n == 0]))
    widths = [n for n in (4, 8, 16, 32) if n % bus == 0 and math.gcd(*rows) % n == 0]
    width = int(one_of(rng, widths))
    return {
        "name": NAME,
        "description": "nobody's",
        "build": True,
        "clock_mhz": 100.0,
        "word_channels": word,
        "array": array,
        "buffers": _buffers(rng, flow, word, array, width),
        "post": {"lanes": _lanes(rng, word), "keep": bool(rng.random() < 0.5)},
        "queues": {n: int(one_of(rng, (64, 128))) for n in ("load", "compute", "post", "store")},
        "counter_bits": int(one_of(rng, (4, 6, 8))),
        "dram": {
            "bus_bytes": bus,
            "capacity": 1 << 25,
            "max_burst": int(one_of(rng, (4, 16, 64))),
            "outstanding": int(one_of(rng, (1, 4, 8))),
            "bytes_per_cycle": float(bus),
            "latency": int(one_of(rng, (1, 20))),
        },
        "numeric": {
            "multiplier_bits": 16 if multipliers or rng.random() < 0.6 else 0,
            "average_bits": 16,
        },
        "dataflow": flow,
    }


def _lanes(rng: np.random.Generator, word: int) -> int:
    """Behind the array, a word in up to four turns."""
    return int(one_of(rng, [n for n in (word, word // 2, word // 4) if n % 8 == 0]))


def _array(rng: np.random.Generator, word: int) -> tuple[Tree, list[int]]:
    """The array, and bytes of a weight row by mode, multiples of the narrowest bus."""
    while True:
        units, multipliers = (int(one_of(rng, (1, 2, 4, 8, 16))) for _ in range(2))
        modes = [
            {"ic": multipliers * k, "oc": units // k // px, "px": px}
            for k in (1, 2, 4, 8)
            for px in (1, 2, 4)
            if _fits(word, units, multipliers * k, units // (k * px), px, units % (k * px))
        ]
        plain = [m for m in modes if m["px"] == 1]
        if not plain or not LEAST_MACS <= units * multipliers <= MOST_MACS:
            continue
        some = [m for m in modes if m["px"] > 1 and rng.random() < 0.4]
        chosen = [*(m for m in plain if rng.random() < 0.7), *some] or plain
        chosen = [chosen[i] for i in rng.permutation(len(chosen))]
        array = {"units": units, "multipliers": multipliers, "modes": chosen}
        array["depthwise"] = bool(rng.random() < 0.5) and units <= word
        halves = array["depthwise"] and units == word and multipliers % 2 == 0
        array["window_cycles"] = 2 if halves and rng.random() < 0.6 else 1
        return array, [m["ic"] * m["oc"] for m in chosen] + [units * multipliers]


def _fits(word: int, units: int, ic: int, oc: int, px: int, rest: int) -> bool:
    """Whether a mode is one that the RTL has; rows of weights have four bytes at least."""
    if rest or not oc or word % ic or word % oc or ic * oc % 4:
        return False
    packed = word & (word - 1) == 0 and px * max(ic, oc) <= word and units % px == 0
    return px == 1 or packed


def _buffers(rng: np.random.Generator, flow: Tree, word: int, array: Tree, width: int) -> Tree:
    """A few times the least of everything."""
    kinds = {m["kind"] for m in flow["modules"].values()}
    macs = array["units"] * array["multipliers"]
    block = -(-word * word // macs) * -(-macs // width)

    def buffer(least: int, *times: int) -> Tree:
        banks = int(one_of(rng, (1, 2, 2)))
        return {"words": banks * least * int(one_of(rng, times)), "banks": banks}

    buffers: dict[str, Any] = {
        "feature": buffer(32, 4, 8, 16),
        "weight": {**buffer(block, 2, 4, 12), "width": width},
        "param": buffer(18 if "norm" in kinds else 10, 1, 2, 4),
        "residual": buffer(32, 2, 4) if kinds & {"res_adder", "se"} else buffer(1, 1),
        "psum": buffer(32, 2, 4, 8),
        "output": buffer(32, 1, 2, 4),
    }
    if any("_pre_" in name for name in flow["modules"]):
        buffers["pre"] = buffer(48, 1, 2)
    if "table" in kinds:
        buffers["table"] = buffer(256, 1, 2)
    if "norm" in kinds:
        buffers["norm"] = buffer(256, 1, 2)
    if word >= 16 and word & (word - 1) == 0 and rng.random() < 0.5:
        buffers["image"] = {"words": int(one_of(rng, (12, 40, 160))), "banks": 1}
    return buffers
