"""Machines for tests, made from opu-tiny: one with every module, one with few, one without
multipliers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from opu_fuse.hw.spec.load_spec import load_hw
from tests.hw.norm_machine import norm_machine

Tree = dict[str, Any]


def write_machine(name: str, folder: Path) -> str:
    """What `load_hw` takes: the name itself for a machine of the project, else a file made here."""
    if name not in MACHINES:
        return name
    tree = load_hw("opu-tiny").to_tree() | {"name": name}
    MACHINES[name](tree)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return str(path)


def _narrow_bus(tree: Tree) -> None:
    """Two beats for a word, bursts up to the end of the page."""
    tree["dram"] |= {"bus_bytes": 4, "max_burst": 256}


def _every_module(tree: Tree) -> None:
    """Depthwise, two pixels a cycle, pre chain, tables, product, upsampling; two beats a word."""
    tree["dram"] |= {"bus_bytes": 4}
    tree["array"] |= {"depthwise": True}
    tree["array"]["modes"].append({"ic": 4, "oc": 4, "px": 2})
    tree["buffers"] |= {"pre": {"words": 32, "banks": 2}, "table": {"words": 768, "banks": 3}}
    flow = tree["dataflow"]
    post = ("compare", "pool", "res_add", "se", "table")
    flow["modules"] |= {
        "pre_mul": {"kind": "multiplier", "operand": "per_channel", "bypass": True},
        "pre_add": {"kind": "adder", "operand": "per_channel", "bypass": True},
        "table": {"kind": "table", "exit": True},
        "res_add": flow["modules"]["res_add"] | {"unit": "residual"},
        "se": {"kind": "se", "operand": "per_channel", "unit": "residual", "exit": True},
        "upsample": {"kind": "upsample", "exit": True},
    }
    flow["edges"] |= {"concat": ["pre_mul"], "pre_mul": ["pre_add"], "pre_add": ["pad"]}
    flow["edges"]["add"] = [*post]
    flow["edges"] |= {name: [*(p for p in post if p != name), "upsample"] for name in post}
    flow["operators"] |= {"table": ["table"], "multiply": ["se"], "upsample": ["upsample"]}


def _gates(tree: Tree) -> None:
    """Every module, and gates before the array in the place of the adder there."""
    _every_module(tree)
    flow = tree["dataflow"]
    del flow["modules"]["pre_add"], flow["edges"]["pre_add"]
    flow["modules"] |= {
        "gate": {"kind": "se", "operand": "per_channel", "bypass": True},
        "clamp": {"kind": "comparator", "bypass": True},
    }
    flow["edges"] |= {"concat": ["pre_mul", "gate"], "clamp": ["pad"]}
    flow["edges"] |= {name: ["clamp"] for name in ("pre_mul", "gate")}


SLOPES = {"kind": "prelu", "operand": "per_channel", "bypass": True, "exit": True}


def _slopes(tree: Tree) -> None:
    """Slopes of channels anywhere in the chain."""
    flow = tree["dataflow"]
    flow["modules"] |= {"slopes": SLOPES}
    flow["edges"] |= {"concat": ["pad", "ipa", "slopes"], "slopes": ["compare", "pool", "res_add"]}
    for name in ("add", "compare", "pool", "res_add"):
        flow["edges"][name] = [*flow["edges"][name], "slopes"]
    flow["operators"] |= {"prelu": ["prelu"]}


def _few_modules(tree: Tree) -> None:
    """No pool, no residual adder, no way to keep maps."""
    tree["post"] |= {"keep": False}
    flow = tree["dataflow"]
    for name in ("pool", "res_add"):
        del flow["modules"][name], flow["edges"][name]
    flow["edges"] = {n: [t for t in to if t in flow["modules"]] for n, to in flow["edges"].items()}
    flow["edges"].pop("compare")
    flow["operators"]["add"] = ["adder"]
    for name in ("max_pool", "avg_pool"):
        del flow["operators"][name]


def _odd_buffers(tree: Tree) -> None:
    """As few modules; buffers that end between powers of two."""
    _few_modules(tree)
    for name, words in (("feature", 250), ("psum", 120), ("output", 100)):
        tree["buffers"][name]["words"] = words


def _no_multipliers(tree: Tree) -> None:
    """Powers of two only, with a product module."""
    _every_module(tree)
    tree["numeric"]["multiplier_bits"] = 0


def _four_turns(tree: Tree) -> None:
    """Every module and slopes, words of 32 channels through 8 lanes, one to four pixels a word."""
    _every_module(tree)
    flow = tree["dataflow"]
    flow["modules"] |= {"slopes": SLOPES}
    flow["edges"] |= {"add": [*flow["edges"]["add"], "slopes"], "slopes": ["pool", "res_add"]}
    flow["operators"] |= {"prelu": ["prelu"]}
    tree |= {"word_channels": 32}
    tree["post"] |= {"lanes": 8}
    tree["array"] |= {"units": 16, "multipliers": 8}
    sizes = ((32, 4, 1), (16, 8, 1), (8, 16, 1), (8, 8, 2), (8, 4, 4))
    tree["array"]["modes"] = [{"ic": ic, "oc": oc, "px": px} for ic, oc, px in sizes]
    tree["buffers"]["weight"] |= {"width": 8}


def _two_turns(tree: Tree) -> None:
    """Four turns made two: 16 lanes, no word of several pixels."""
    _four_turns(tree)
    tree["post"] |= {"lanes": 16}
    tree["array"]["modes"] = [mode for mode in tree["array"]["modes"] if mode["px"] == 1]


def _slow_sums(tree: Tree) -> None:
    """Four turns made one, but for second operands: a quarter of the lanes."""
    _four_turns(tree)
    tree["post"] |= {"lanes": 32, "residual_lanes": 8}


def _sums_in_tables(tree: Tree) -> None:
    """The residual adder takes no slices."""
    tree["post"] |= {"residual_tables": True}


def _array_in_tables(tree: Tree) -> None:
    """Half of the array's products take no slices."""
    tree["array"] |= {"table_terms": tree["array"]["multipliers"] // 2}


def _paired_windows(tree: Tree) -> None:
    """Every module, words of 16 channels, windows of up to 4 x 4 in two cycles."""
    _every_module(tree)
    tree |= {"word_channels": 16}
    tree["post"] |= {"lanes": 16}
    tree["array"] |= {"units": 16, "multipliers": 16, "window_cycles": 2}
    tree["array"]["modes"] = [{"ic": 16, "oc": 16, "px": 1}]


def _images(tree: Tree) -> None:
    """Windows of images unfolded into words of 16 bytes, two beats each; two pixels a cycle."""
    tree |= {"word_channels": 16}
    tree["post"] |= {"lanes": 16}
    tree["array"] |= {"units": 16, "multipliers": 8}
    sizes = ((16, 8, 1), (8, 16, 1), (8, 8, 2))
    tree["array"]["modes"] = [{"ic": ic, "oc": oc, "px": px} for ic, oc, px in sizes]
    tree["buffers"] |= {"image": {"words": 90, "banks": 1}}
    tree["buffers"]["feature"] |= {"words": 250}


def _wide_images(tree: Tree) -> None:
    """The same in words of 64 bytes, a beat each."""
    _images(tree)
    tree |= {"word_channels": 64}
    tree["dram"] |= {"bus_bytes": 64}
    tree["post"] |= {"lanes": 64}
    tree["array"] |= {"units": 16, "multipliers": 16}
    sizes = ((64, 4, 1), (32, 8, 1), (16, 16, 1), (16, 8, 2), (16, 4, 4))
    tree["array"]["modes"] = [{"ic": ic, "oc": oc, "px": px} for ic, oc, px in sizes]
    tree["buffers"]["weight"] |= {"width": 64}
    tree["buffers"]["param"] |= {"words": 16}


def _norms(tree: Tree) -> None:
    """Norms and tables behind the array and the residual adder."""
    tree |= norm_machine().to_tree()


def _wide_norms(tree: Tree) -> None:
    """The same with words of 64 channels."""
    name = tree["name"]
    _norms(tree)
    tree |= {"name": name, "word_channels": 64}
    tree["dram"] |= {"bus_bytes": 64}
    tree["post"] |= {"lanes": 64}
    tree["array"] |= {"units": 16, "multipliers": 16}
    sizes = ((64, 4, 1), (32, 8, 1), (16, 16, 1))
    tree["array"]["modes"] = [{"ic": ic, "oc": oc, "px": 1} for ic, oc, _ in sizes]
    tree["buffers"]["weight"] |= {"width": 64}


def _two_turn_norms(tree: Tree) -> None:
    """The same through 32 lanes."""
    _wide_norms(tree)
    tree["post"] |= {"lanes": 32}


MACHINES: dict[str, Callable[[Tree], None]] = {
    "narrow-bus": _narrow_bus,
    "every-module": _every_module,
    "gates": _gates,
    "slopes": _slopes,
    "few-modules": _few_modules,
    "odd-buffers": _odd_buffers,
    "no-multipliers": _no_multipliers,
    "four-turns": _four_turns,
    "two-turns": _two_turns,
    "slow-sums": _slow_sums,
    "sums-in-tables": _sums_in_tables,
    "array-in-tables": _array_in_tables,
    "paired-windows": _paired_windows,
    "images": _images,
    "wide-images": _wide_images,
    "norms": _norms,
    "wide-norms": _wide_norms,
    "two-turn-norms": _two_turn_norms,
}
