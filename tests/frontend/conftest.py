"""What the frontend's tests share: graphs as ONNX text, two ways of running them, a short print."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from opu_fuse.frontend.canonical import canonicalise
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.qdq_reference import reference, session
from opu_fuse.frontend.quantization.absorb_qdq import absorb, ready
from opu_fuse.quant import META_KEY, NORMS_KEY
from tests.some import some

TENSOR_KEY = "opu_fuse.tensor"
Arrays = dict[str, np.ndarray]


def parse(
    text: str, *, opset: int = 17, ir_version: int = 8, **weights: np.ndarray | np.generic
) -> onnx.ModelProto:
    """The body of a graph in ONNX text; keyword arrays become initialisers of that name."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    model = onnx.parser.parse_model(header + text)
    for name, data in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data), name))
    return model


def run_plain(
    model: onnx.ModelProto | ir.Model, inputs: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Model outputs from ONNX Runtime without optimisation."""
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    return [np.asarray(v) for v in session(proto).run(None, dict(inputs))]


def replay(canonical: ir.Model, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a canonical int8 model in ONNX Runtime with a rounding wherever it is annotated.

    Independent of how the QDQ model placed its nodes. Returns int8 by name of the QDQ tensor, and
    the model's outputs.
    """
    model = canonical.clone()
    originals = ir.convenience.create_value_mapping(canonical.graph)
    graph = model.graph
    shown: dict[str, str] = {}

    def scalar(name: str, data: np.generic) -> ir.Value:
        const = ir.tensor(np.asarray(data), name=name)
        value = ir.Value(name=name, const_value=const)
        value.dtype, value.shape = ir.DataType(const.dtype), ir.Shape(data.shape)
        graph.register_initializer(value)
        return value

    for value in list(graph.initializers.values()):
        quant = originals[some(value.name)].meta.get(META_KEY)
        if quant is not None:
            value.const_value = ir.tensor(
                quant.dequantize(some(value.const_value).numpy()), name=value.name
            )
            value.dtype = ir.DataType.FLOAT
    values = [*graph.inputs, *(v for node in graph for v in node.outputs)]
    for value in values:
        meta = originals[some(value.name)].meta
        quant = meta.get(META_KEY)
        if quant is None:
            continue
        scale = scalar(f"{value.name}/s", np.float32(quant.per_tensor))
        zero = scalar(f"{value.name}/z", np.int8(quant.zero_point))
        uses, is_output = list(value.uses()), value.is_graph_output()
        integers = value
        nodes = []
        if value.dtype != ir.DataType.INT8:
            nodes.append(ir.node("QuantizeLinear", [value, scale, zero]))
            integers = nodes[0].outputs[0]
            integers.name = f"{value.name}/q"
        nodes.append(ir.node("DequantizeLinear", [integers, scale, zero]))
        real = nodes[-1].outputs[0]
        for use in uses:
            use.node.replace_input_with(use.idx, real)
        graph.extend(nodes)
        if is_output:
            graph.outputs[list(graph.outputs).index(value)] = real
            value.name, real.name = f"{value.name}/raw", value.name
            real.dtype = ir.DataType.FLOAT
        if TENSOR_KEY in meta and nodes[0].op_type == "QuantizeLinear":
            shown[meta[TENSOR_KEY]] = some(integers.name)
    graph.sort()
    ran = session(ir.to_proto(model), list(shown.values()))
    names = [o.name for o in ran.get_outputs()]
    results = dict(zip(names, map(np.asarray, ran.run(names, dict(inputs))), strict=True))
    outputs = {some(v.name): results[some(v.name)] for v in graph.outputs}
    return outputs | {tensor: results[name] for tensor, name in shown.items()}


def listing(model: ir.Model) -> str:
    """One line per node: `name: result = Op(operands) {attributes}`; constants as their shape."""
    lines = []
    for node in model.graph:
        operands = ", ".join(_operand(v) for v in node.inputs)
        attributes = " ".join(f"{k}={_attribute(a)}" for k, a in sorted(node.attributes.items()))
        shape = "x".join(str(d) for d in node.outputs[0].shape or ())
        call = f"{node.name}: {node.op_type}({operands})"
        line = f"{call} -> {node.outputs[0].name} [{shape}] {attributes}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def _operand(value: ir.Value | None) -> str:
    if value is None:
        return "-"
    if value.const_value is None:
        return value.name or "?"
    data = value.const_value.numpy()
    if data.size == 1 and data.ndim == 0:
        return f"{data.item():g}"
    if data.dtype == np.int64:
        return str(data.tolist())
    return "const " + "x".join(str(n) for n in data.shape)


def _attribute(attribute: ir.Attr) -> str:
    value = attribute.value
    return str(list(value)) if isinstance(value, (list, tuple)) else str(value)


@pytest.fixture
def onnx_text() -> Callable[..., onnx.ModelProto]:
    return parse


@pytest.fixture
def canonical() -> Callable[..., ir.Model]:
    """Load and canonicalise a float model, with rewrites or without, for a machine with norms;
    checks that the outputs stay the same.
    """

    def run(
        model: onnx.ModelProto, *, rewriting: bool = False, norms: Collection[str] = ()
    ) -> ir.Model:
        result = load_model(model)
        if norms:
            result.graph.meta[NORMS_KEY] = frozenset(norms)
        canonicalise(result, rewriting=rewriting)
        makers = {v.producer() for node in result.graph for v in node.inputs if v} - {None}
        assert all(node.graph is result.graph for node in makers if node), "reads what is gone"
        rng = np.random.default_rng(3)
        inputs = {}
        for value in model.graph.input:
            if value.name in {t.name for t in model.graph.initializer}:
                continue
            dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            inputs[value.name] = rng.standard_normal(dims, np.float32)
        for before, after in zip(run_plain(model, inputs), run_plain(result, inputs), strict=True):
            assert before.shape == after.shape
            np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-5)
        return result

    return run


@pytest.fixture
def print_nodes() -> Callable[[ir.Model], str]:
    return listing


@pytest.fixture
def replayed() -> Callable[[ir.Model, Mapping[str, np.ndarray]], Arrays]:
    return replay


@pytest.fixture
def absorbed(rng: np.random.Generator) -> Callable[[onnx.ModelProto], ir.Model]:
    """Absorb, and compare every rounded tensor and all outputs with ONNX Runtime's."""

    def run(model: onnx.ModelProto) -> ir.Model:
        loaded = load_model(model)
        canonical = ready(loaded.clone())
        absorb(canonical)
        inputs = {}
        for value in loaded.graph.inputs:
            dims = [int(d) for d in value.shape or ()]  # type: ignore[arg-type]  # dimensions were fixed by `load`
            kind = value.dtype.numpy() if value.dtype else np.float32
            random = rng.standard_normal(dims) if kind == np.float32 else rng.integers(0, 100, dims)
            inputs[value.name or ""] = random.astype(kind)
        expected, got = reference(ir.to_proto(loaded), inputs), replay(canonical, inputs)
        assert got
        for name, value in got.items():
            wanted = expected[name]
            if wanted.dtype == np.uint8 and value.dtype == np.int8:
                wanted = (wanted.astype(np.int16) - 128).astype(np.int8)
            np.testing.assert_array_equal(value, wanted, err_msg=name)
        return canonical

    return run
