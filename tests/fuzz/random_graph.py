"""Random data-flow graphs of machines: modules, edges and operators that mostly can be built.

A graph has the places that the RTL has (pre chain, padding, array, accumulators, post chain,
store); which modules stand there, who feeds whom, what may be passed or left, limits and which
operators run where are drawn. What cannot be reached is given an edge and what cannot be left an
exit; `hw check` has the last word.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from opu_fuse.hw.spec.check_graph import RUNS
from tests.fuzz.mutations import one_of

Tree = dict[str, Any]
MOST_STAGES, MOST_BEFORE = 12, 6
ROOT = "fetch"

_LAYERS = ("root", "pre", "pad", "array", "acc", "post", "store")
_STAGES = ("comparator", "pool", "res_adder", "se", "table", "prelu", "norm")
_CYCLIC = ("pre", "acc", "post")
"""Layers whose modules may feed each other in any order."""
_SAME_STAGE = {"se": "res_adder"}
"""Kinds that share their unit with another kind."""


def draw_dataflow(rng: np.random.Generator) -> Tree:
    """The part `dataflow` of a machine."""
    modules, layers = _modules(rng)
    edges = _edges(rng, modules, layers)
    _reached(rng, edges, layers)
    _left(modules, edges)
    return {
        "root": ROOT,
        "modules": modules,
        "edges": {name: targets for name, targets in edges.items() if targets},
        "operators": _operators(rng, {m["kind"] for m in modules.values()}),
    }


def _modules(rng: np.random.Generator) -> tuple[dict[str, Tree], dict[str, str]]:
    """Modules by name in an order of the spec, and the layer of each."""
    chance = _chances(rng)
    found: list[tuple[str, str, Tree]] = [("root", ROOT, {"kind": "mem_rd"})]
    for n in range(int(rng.integers(MOST_BEFORE + 1)) if chance(0.4) else 0):
        kind = str(rng.choice(("multiplier", "adder", "comparator")))
        found.append(("pre", f"{kind}_pre_{n}", _of_kind(rng, kind)))
    if chance(0.7):
        found.append(("pad", "pad", _of_kind(rng, "pad")))
    array = {"kind": "ipa", "domain_out": "acc", "limits": _limits(rng, "ipa")}
    found.append(("array", "ipa", array))
    for kind, share in (("multiplier", 0.3), ("adder", 0.9)):
        if chance(share):
            found.append(("acc", f"{kind}_acc", {**_of_kind(rng, kind), "domain": "acc"}))
    for n in range(int(rng.integers(MOST_STAGES + 1, size=2).max())):
        kind = str(rng.choice(_STAGES, p=(0.28, 0.17, 0.15, 0.11, 0.12, 0.08, 0.09)))
        found.append(("post", f"{kind}_{n}", _of_kind(rng, kind)))
        if kind == "pool" and chance(0.3):
            found.append(("post", f"pad_{n}", _of_kind(rng, "pad")))
    if chance(0.4):
        found.append(("store", "store", _of_kind(rng, one_of(rng, ("upsample", "mem_wr")))))
    for layer, _, module in found:
        module["bypass"] = chance(0.7 if layer == "post" else 0.95)
        module["exit"] = chance(0.3 if layer in {"root", "pre", "pad"} else 0.8)
        if layer == "post" and chance(0.02):
            module["domain_in"] = "acc"
    _share_units(rng, [m for layer, _, m in found if layer == "post"])
    _use_again(rng, [(layer, m) for layer, _, m in found if layer in {"pre", "post"}])
    if chance(0.5):  # codes follow the order of the spec
        found = [found[i] for i in rng.permutation(len(found))]
    modules = {name: module for _, name, module in found}
    return modules, {name: layer for layer, name, _ in found}


def _of_kind(rng: np.random.Generator, kind: str) -> Tree:
    module: Tree = {"kind": kind}
    match kind:
        case "multiplier" | "adder" | "prelu" | "norm":
            module["operand"] = "per_channel"
        case "res_adder":
            module["operand"] = "full"
        case "se":
            module["operand"] = one_of(rng, ("per_channel", "full"))
        case "pool" | "pad":
            module["limits"] = _limits(rng, kind)
    return module


def _limits(rng: np.random.Generator, kind: str) -> Tree:
    """A pool's window is never dilated; the other limits are there now and then."""
    chance = _chances(rng)
    limits: Tree = {"dilation": 1} if kind == "pool" else {}
    sizes: Mapping[str, tuple[int, ...]] = {
        "pool": {"window": (1, 2, 3, 7, 255), "stride": (1, 2, 3, 255), "padding": (0, 1, 2)},
        "ipa": {
            "kernel": (1, 3, 5),
            "stride": (1, 2),
            "dilation": (1, 2),
            "padding": (0, 1, 3),
        },
        "pad": {"padding": (0, 1, 2, 3)},
    }[kind]
    for name, values in sizes.items():
        if chance(0.12 if kind == "ipa" else 0.3):
            limits[name] = one_of(rng, values)
    if chance(0.15):
        limits["asymmetric"] = False
    if kind == "pad" and chance(0.25):
        limits["fill"] = "zero"
    return limits


def _share_units(rng: np.random.Generator, post: Iterable[Tree]) -> None:
    """Modules of one kind of stage now and then are the same hardware."""
    share = one_of(rng, (0.0, 0.0, 0.3, 0.7))
    for module in post:
        if module["kind"] in _STAGES and rng.random() < share:
            kind = _SAME_STAGE.get(module["kind"], module["kind"])
            module["unit"] = f"{kind}_unit_{int(rng.integers(2))}"


def _use_again(rng: np.random.Generator, chains: Iterable[tuple[str, Tree]]) -> None:
    """Modules that a pass comes to twice, as far as the chains have room."""
    modules = list(chains)
    room = {"pre": MOST_BEFORE, "post": MOST_STAGES}
    for layer, _ in modules:
        room[layer] -= 1
    share = one_of(rng, (0.0, 0.1, 0.4))
    for layer, module in modules:
        again = "unit" not in module and module["kind"] not in {"pool", "pad"}
        if again and room[layer] > 0 and rng.random() < share:
            module["uses"] = 2
            room[layer] -= 1


def _edges(
    rng: np.random.Generator, modules: Mapping[str, Tree], layers: Mapping[str, str]
) -> dict[str, list[str]]:
    """A way through the places before the array, with short cuts; any edges behind it."""
    dense = one_of(rng, (0.1, 0.3, 0.6, 0.9))
    rank = {name: _LAYERS.index(layer) for name, layer in layers.items()}
    front = sorted((n for n in modules if layers[n] != "post"), key=lambda n: rank[n])
    edges: dict[str, list[str]] = {name: [] for name in modules}
    for place, name in enumerate(front[1:], 1):
        skipping = rng.random() < 0.25
        sources = {front[place - 1], one_of(rng, front[:place])} if skipping else [front[place - 1]]
        for source in sorted(sources):
            edges[source].append(name)
    post = [n for n in modules if layers[n] == "post"]
    for name in post:
        for source in modules:
            near = layers[source] in {"acc", "array"}
            share = dense if layers[source] == "post" else 0.5 if near else 0.08
            if source != name and layers[source] != "store" and rng.random() < share:
                edges[source].append(name)
        if layers.get("store") and rng.random() < 0.3:
            edges[name].append("store")
    for pool in (n for n in post if modules[n]["kind"] == "pool"):
        for pad in (n for n in post if modules[n]["kind"] == "pad"):
            if pool not in edges[pad]:
                edges[pad].append(pool)
    for source, targets in edges.items():
        if layers[source] in _CYCLIC:
            backwards = [n for n in modules if layers[n] == layers[source] != "post"]
            new = [n for n in backwards if n not in targets and n != source]
            targets += [n for n in new if rng.random() < 0.2]
        rng.shuffle(targets)
    return edges


def _reached(
    rng: np.random.Generator, edges: dict[str, list[str]], layers: Mapping[str, str]
) -> None:
    """An edge to every module that the root does not lead to."""
    for name in sorted(edges, key=lambda n: _LAYERS.index(layers[n])):
        reached = _closure(edges, [ROOT])
        if name not in reached:
            before = [n for n in edges if n in reached and _may_feed(layers[n], layers[name])]
            last = max(_LAYERS.index(layers[n]) for n in before)
            near = [n for n in before if _LAYERS.index(layers[n]) == last]
            edges[one_of(rng, near)].append(name)


def _may_feed(source: str, target: str) -> bool:
    return _LAYERS.index(source) < _LAYERS.index(target) or (source == target and source in _CYCLIC)


def _left(modules: Mapping[str, Tree], edges: Mapping[str, list[str]]) -> None:
    """An exit for every module from which there is none."""
    backwards: dict[str, list[str]] = {name: [] for name in modules}
    for source, targets in edges.items():
        for target in targets:
            backwards[target].append(source)
    for name in reversed(list(modules)):
        if name not in _closure(backwards, [n for n, m in modules.items() if m["exit"]]):
            modules[name]["exit"] = True


def _closure(edges: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    found, todo = set(starts), list(starts)
    while todo:
        new = set(edges[todo.pop()]) - found
        found |= new
        todo += new
    return found


def _operators(rng: np.random.Generator, present: set[str]) -> dict[str, list[str]]:
    """The convolution always, nearly all others, on some of their kinds. Averages are the pool's,
    activations the comparator's.
    """
    others = {
        "avg_pool": "ipa",
        "upsample": "mem_wr",
        **dict.fromkeys(("relu", "clip", "leaky_relu"), "table"),
    }
    found: dict[str, list[str]] = {}
    for operator, kinds in RUNS.items():
        able = [str(k) for k in kinds if k in present and k != others.get(operator)]
        if able and (operator == "conv" or rng.random() < 0.95):
            count = len(able) if rng.random() < 0.6 else 1
            found[operator] = [able[i] for i in rng.permutation(len(able))[:count]]
    return found


def _chances(rng: np.random.Generator) -> Any:
    return lambda share: bool(rng.random() < share)
