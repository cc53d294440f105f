"""Machines nobody drew: hardware specs with changed bytes, keys, values and structure.

What `hw check` accepts compiles a small network, and the functional engine has the bits of ONNX
Runtime at its outputs.
"""

import copy
import functools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from opu_fuse import zoo
from opu_fuse.errors import SpecError
from opu_fuse.frontend.prepare import Prepared
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw, problems, spec_names
from opu_fuse.pipeline import Options, Program, compile_model, compile_prepared
from opu_fuse.sim.compare.runs import check
from tests.fuzz.mutations import change_text, change_tree, one_of, rng_of
from tests.fuzz.worker import SECONDS_PER_CASE

NETWORKS = ("tiny_odd", "tiny_residual")
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """base: a shipped machine; text: its YAML before the changes (a seed each); whole: sizes that
    belong together are changed together, so that many are accepted.
    """

    base: str
    changes: tuple[int, ...]
    whole: bool
    network: str


def spec_text(case: Case) -> str:
    """The YAML of a case."""
    tree = copy.deepcopy(_tree(case.base))
    text = None
    for seed in case.changes:
        rng = rng_of(seed)
        if case.whole:
            _change_together(rng, tree)
        elif rng.random() < 0.6 and text is None:
            change_tree(rng, tree)
        else:
            text = change_text(rng, _dumped(tree) if text is None else text)
    return _dumped(tree) if text is None else text


def _dumped(tree: Any) -> str:
    try:
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    except (yaml.YAMLError, UnicodeError):
        return repr(tree)


@functools.cache
def _tree(base: str) -> Any:
    return load_hw(base).to_tree()


def _change_together(rng: np.random.Generator, tree: Any) -> None:
    """One change of a machine that leaves it a machine, more often than not."""
    buffers = tree["buffers"]
    match int(rng.integers(9)):
        case 0:
            _other_array(rng, tree)
        case 1:
            name = one_of(rng, [n for n, b in buffers.items() if b])
            buffers[name]["banks"] = int(rng.integers(1, 5))
            buffers[name]["words"] = buffers[name]["banks"] * int(rng.integers(1, 400))
        case 2:
            bus = int(one_of(rng, (4, 8, 16)))
            tree["dram"]["bus_bytes"] = bus
            tree["dram"]["bytes_per_cycle"] = float(one_of(rng, (0.5, 1, 3.7, bus, 2 * bus)))
            buffers["weight"]["width"] = bus * int(one_of(rng, (1, 2)))
        case 3:
            tree["queues"] = {name: int(rng.integers(1, 130)) for name in tree["queues"]}
        case 4:
            tree["dram"]["max_burst"] = int(rng.integers(1, 257))
            tree["dram"]["outstanding"] = int(rng.integers(1, 65))
            tree["counter_bits"] = int(rng.integers(1, 17))
        case 5:
            tree["numeric"]["multiplier_bits"] = int(rng.integers(0, 17))
        case 6:
            _without_module(rng, tree)
        case 7:
            tree["post"]["keep"] = not tree["post"]["keep"]
            tree["array"]["depthwise"] = bool(rng.integers(2))
            tree["array"]["window_cycles"] = 1 + int(rng.integers(2)) * tree["array"]["depthwise"]
        case _:
            _other_edges(rng, tree)


def _other_array(rng: np.random.Generator, tree: Any) -> None:
    """Words, units, multipliers and modes that fit each other."""
    word = int(one_of(rng, (8, 8, 16, 24, 32, 40, 12)))
    multipliers = int(one_of(rng, [n for n in _SIZES if word % n == 0]))
    units = int(one_of(rng, [n for n in _SIZES if n <= 2 * word]))
    modes = [
        {"ic": multipliers * k, "oc": units // k // px, "px": px}
        for k in (1, 2, 4, 8)
        for px in (1, 2, 4)
        if word % (multipliers * k) == 0 and units % (k * px) == 0 and units // k // px <= word
    ]
    chosen = [m for m in modes if m["px"] == 1 or rng.random() < 0.3]
    if not chosen:
        return
    rng.shuffle(chosen)
    tree["word_channels"] = word
    tree["post"]["lanes"] = word >> int(rng.integers(0, 3)) * (word % 32 == 0)
    tree["array"] |= {"units": units, "multipliers": multipliers, "modes": chosen[:4]}
    weight = tree["buffers"]["weight"]
    row_words = -(-units * multipliers // weight["width"])
    rows = -(-word * word // (units * multipliers))
    weight["words"] = weight["banks"] * row_words * rows * int(rng.integers(1, 6))


def _without_module(rng: np.random.Generator, tree: Any) -> None:
    flow = tree["dataflow"]
    gone = one_of(rng, [n for n in flow["modules"] if n != flow["root"]])
    kind = flow["modules"].pop(gone)["kind"]
    before = [n for n, targets in flow["edges"].items() if gone in targets]
    after = flow["edges"].pop(gone, [])
    for name in before:
        targets = [t for t in flow["edges"][name] if t != gone]
        flow["edges"][name] = targets + [t for t in after if t not in targets and t != name]
    if not any(m["kind"] == kind for m in flow["modules"].values()):
        left = {op: [k for k in kinds if k != kind] for op, kinds in flow["operators"].items()}
        flow["operators"] = {op: kinds for op, kinds in left.items() if kinds}


def _other_edges(rng: np.random.Generator, tree: Any) -> None:
    edges = tree["dataflow"]["edges"]
    name = one_of(rng, list(edges))
    if edges[name] and rng.random() < 0.5:
        rng.shuffle(edges[name])
    elif len(edges[name]) > 1:
        edges[name].pop()


@functools.cache
def prepared(network: str) -> Prepared:
    """The quantised network; machines share it."""
    return compile_model(zoo.build(network, image=12), load_hw("opu-tiny"), Options()).prepared


def require_right(hw: HwSpec, network: str) -> str | None:
    """Compile a network for the machine and hold a run against ONNX Runtime."""
    bundle = compile_prepared(prepared(network), hw).bundle
    program = Program(bundle=bundle, hw=hw)
    rng = np.random.default_rng(1)
    inputs = {p.name: rng.standard_normal(p.shape).astype(p.dtype) for p in bundle.inputs}
    result = program.run(inputs, capture=True)
    program.run(engine="cycle")
    found = check(bundle, inputs, result)
    return None if found.passed else str(found.first or "nothing could be compared")


class Specs:
    """See the head of this file."""

    name, share = "specs", 0.5

    def draw(self, seed: int) -> Case:
        rng = rng_of(seed)
        whole = bool(rng.random() < 0.5)
        changes = rng.integers(1 << 31, size=int(rng.integers(1, 5 if whole else 4)))
        return Case(
            base=one_of(rng, spec_names()),
            changes=tuple(int(n) for n in changes),
            whole=whole,
            network=one_of(rng, NETWORKS),
        )

    def machines(self, case: Case) -> Sequence[str]:
        return [""]

    def seconds(self, case: Case) -> float:
        return SECONDS_PER_CASE

    def judge(self, case: Case, machine: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.yaml"
            path.write_bytes(spec_text(case).encode(errors="surrogatepass"))
            found = problems(str(path))
            for problem in found:
                if "\n" in str(problem):
                    return f"a mistake in several lines: {str(problem)!r}"
            if found:
                raise found[0]
            hw = load_hw(path)
        if not hw.build:
            raise SpecError(hw.name, "cannot be built (build: false)", "only partition for it")
        return require_right(hw, case.network)

    def smaller(self, case: Case, machine: str) -> Iterator[Case]:
        for i in range(len(case.changes)):
            yield replace(case, changes=case.changes[:i] + case.changes[i + 1 :])

    def write(self, case: Case, folder: Path) -> None:
        (folder / "machine.yaml").write_bytes(spec_text(case).encode(errors="surrogatepass"))


KIND = Specs()
