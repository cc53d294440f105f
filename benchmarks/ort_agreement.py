"""How far the integers of the golden model are from ONNX Runtime's, operator by operator.

    python benchmarks/ort_agreement.py [NETWORK ...] [--hw opu-1024] [--image N] [--samples 2]

Every operator runs on ONNX Runtime's own int8 operands, so that a difference is its own ("largest"
is the largest difference of int8 values); whole networks run on the golden model's operands, so
that differences add up. Functional engine and RTL equal the golden model bit for bit. Networks are
the zoo's, at reduced resolution without --image, and `transposed`. Exits with 1 when an
operator breaks the promise: none of the values differs with power-of-two scales, except averages
over other counts than powers of two, and none by more than 1.
"""

import argparse
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from opu_fuse import zoo
from opu_fuse.bundle.program import Bundle
from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.integer import ACCUMULATING, Numeric, operator
from opu_fuse.dfg.interpret import Values, evaluate, interpret, runs_integer
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.ort_reference import Reference
from opu_fuse.units.pool import average_params

NETWORKS = {
    "resnet18": 64,
    "resnet20": 32,
    "googlenet": 64,
    "mobilenet_v1_025": 96,
    "mobilenet_v2": 64,
    "efficientnet_b0": 64,
    "shufflenet_v2": 96,
    "squeezenet": 64,
    "densenet_small": 32,
    "unet": 32,
    "yolov3_tiny": 64,
    "tiny_odd": 25,
    "transposed": 12,
}
"""Rows and columns of their images."""
AVERAGE = "avg_pool, other counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Values compared, how many differ, and the largest difference."""

    values: int = 0
    differing: int = 0
    largest: int = 0

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            values=self.values + other.values,
            differing=self.differing + other.differing,
            largest=max(self.largest, other.largest),
        )

    def __str__(self) -> str:
        share = f" ({100 * self.differing / self.values:.4f} %)" if self.differing else ""
        return f"{self.differing:,}{share}, {self.largest}"


def main() -> int:
    """0 when every operator keeps the promise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(NETWORKS))
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--image", type=int)
    parser.add_argument("--samples", type=int, default=2)
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # calibration on noise is meant
    hw = load_hw(args.hw)
    operators: dict[str, dict[str, Agreement]] = {}
    networks: dict[str, dict[str, Agreement]] = {}
    for name in args.networks:
        for scales in Scales:
            compiled = compile_model(build(name, args.image), hw, Options(scales=scales))
            rng = np.random.default_rng(0)
            for _ in range(args.samples):
                inputs = random_inputs(compiled.bundle, rng)
                expected = onnxruntime(compiled.dfg, compiled.bundle, inputs)
                for op, agreement in by_operator(compiled.dfg, expected, hw.numeric):
                    _count(operators, op, scales, agreement)
                whole = interpret(compiled.dfg, inputs, hw.numeric)
                for index, value in expected.items():
                    if index in whole:
                        _count(networks, name, scales, difference(whole[index], value))
    _print("operator", operators)
    _print("network", networks)
    return int(not all(keeps_promise(*row) for row in operators.items()))


def build(name: str, image: int | None = None) -> ir.Model:
    """A network of the zoo, or `transposed`."""
    size = image or NETWORKS.get(name)
    return transposed(size or 12) if name == "transposed" else zoo.build(name, image=size)


def random_inputs(bundle: Bundle, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Standard normal, one sample."""
    return {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in bundle.inputs}


def onnxruntime(dfg: Dfg, bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> Values:
    """int8 of every value that the quantised model rounds, by node index."""
    tensors = Reference(bundle).run(inputs).tensors
    return {n.index: tensors[n.tensor] for n in dfg.nodes if n.tensor in tensors}


def by_operator(
    dfg: Dfg, expected: Mapping[int, np.ndarray], numeric: Numeric
) -> Iterator[tuple[str, Agreement]]:
    """(operator, agreement) of every integer operator on the operands that ONNX Runtime has."""
    values = {n.index: n.const for n in dfg.nodes if n.kind is Kind.CONST and n.const is not None}
    values |= {n.index: expected[n.index] for n in dfg.nodes if n.kind is Kind.VAR}
    for node in dfg.calls:
        anchor = node if node.owner is None else dfg[node.owner]
        for index, value in evaluate(dfg, node.index, values, numeric).items():
            if index in expected and runs_integer(dfg, anchor.index):
                yield label(dfg, anchor, numeric), difference(value, expected[index])
            values[index] = expected.get(index, value)


def label(dfg: Dfg, node: Node, numeric: Numeric) -> str:
    """The operator as the table names it."""
    if node.op == "avg_pool":
        counts = [count for count, _ in average_params(operator(dfg, node.index), numeric).mults]
        return AVERAGE if any(c & (c - 1) for c in counts) else "avg_pool, powers of two"
    if node.op in ACCUMULATING and node.attrs.get("group", 1) > 1:
        return f"{node.op}, grouped"
    return node.op


def difference(got: np.ndarray, expected: np.ndarray) -> Agreement:
    """Of int8 values, held against others of the same number."""
    gap = np.abs(got.reshape(expected.shape).astype(np.int16) - expected)
    return Agreement(
        values=gap.size, differing=int(np.count_nonzero(gap)), largest=int(gap.max(initial=0))
    )


def keeps_promise(op: str, agreements: Mapping[str, Agreement]) -> bool:
    """Nothing differs with power-of-two scales but other averages, and nothing by more than 1."""
    powers = (f for scales, f in agreements.items() if scales != Scales.FREE)
    exact = op == AVERAGE or not any(f.differing for f in powers)
    return exact and all(f.largest <= 1 for f in agreements.values())


def transposed(image: int) -> ir.Model:
    """Two transposed convolutions, the second one depthwise."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.normal(0.0, 0.2, (16, 3, 3, 3)),
        "w1": rng.normal(0.0, 0.2, (16, 12, 4, 4)),
        "w2": rng.normal(0.0, 0.5, (12, 1, 3, 3)),
        "bias": rng.normal(0.0, 0.2, 12),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=(1, 1, 1, 1)),
        helper.make_node("ConvTranspose", ["a", "w1", "bias"], ["b"], strides=(2, 2)),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("ConvTranspose", ["c", "w2"], ["y"], strides=(3, 2), group=12),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 3, image, image)), ("y", None))
    ]
    tensors = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "transposed", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


def _count(table: dict[str, dict[str, Agreement]], row: str, scales: str, more: Agreement) -> None:
    cells = table.setdefault(row, defaultdict(Agreement))
    cells[scales] += more


def _print(kind: str, table: Mapping[str, Mapping[str, Agreement]]) -> None:
    heads = (f"differing with {scales}, largest" for scales in Scales)
    print(f"\n| {kind} | values | {' | '.join(heads)} |")
    print(f"|---|---|{'---|' * len(Scales)}")
    for name, cells in sorted(table.items()):
        row = (name, f"{cells['pow2'].values:,}", *(str(cells[s]) for s in Scales))
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    sys.exit(main())
