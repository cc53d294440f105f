"""A program written by hand for opu-tiny: conv, relu, maxpool on the machine, softmax on the host
(behind a kernel that dequantises).

Small enough to follow, with every kind of thing a program file can hold.
"""

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.affine import identity_map
from opu_fuse.bundle.kernel_json import kernel_to_json
from opu_fuse.bundle.program import (
    Boundary,
    Bundle,
    Cut,
    DerivedNodes,
    GroupInfo,
    HostedOp,
    HostPiece,
    HostSegment,
    InstructionRange,
    MachineSegment,
    Op,
    PieceOp,
    Port,
    StageTensor,
    Tensor,
)
from opu_fuse.host.kernel import GenericOp, Input, Instr, Iterator, Kernel, Loop, Result
from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.isa.instruction import split_address
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.load_spec import load_hw
from tests.sim.random_instructions import instruction

HW = load_hw("opu-tiny")
C, SIZE, OUT = 8, 4, 2
X_SCALE, W_SCALE, Y_SCALE = 2.0**-4, 2.0**-6, 1.0
WEIGHTS, PARAMS, INPUT, OUTPUT, PROGRAM = 0, 576, 640, 768, 832
ORDER = ("requant", "compare", "pool")


def sample_bundle(seed=0, **changes):
    """The bundle; changes replace its fields."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(-128, 128, (C, C, 3, 3)).astype(np.int8)
    bias = rng.integers(-500, 500, C).astype(np.int32)
    words = encode(program())
    bundle = Bundle(
        model="sample",
        model_hash="0" * 64,
        spec_yaml=HW.to_yaml(),
        spec_hash=HW.spec_hash,
        tool_version="test",
        tensors=(
            tensor("x", "x_q", SIZE, INPUT, X_SCALE, first=-1),
            tensor("pool", "pool_q", OUT, OUTPUT, Y_SCALE, first=0),
        ),
        inputs=(port("x", (1, C, SIZE, SIZE), "x", X_SCALE),),
        outputs=(port("y", (1, C, OUT, OUT), "y", None),),
        groups=(group(),),
        segments=(
            MachineSegment(
                program_offset=PROGRAM,
                words=len(words),
                groups=(-1, 0, 0, 0, 0, 0, 0, -1),
                tiles=((0, 0, 0, 0, 0),),
            ),
            host_segment(),
        ),
        boundaries=(Boundary("maxpool", "softmax", "Softmax: no module of this machine runs it"),),
        source_map={
            "conv": DerivedNodes(("conv", "conv/bias"), 0),
            "softmax": DerivedNodes(("softmax",), -1),
        },
        window_bytes=PROGRAM + 4 * len(words) + (-len(words) % 16) * 4,
        program_offset=PROGRAM,
        constants=constants(weight, bias),
        words=words,
        hosts={"host/000.0.kernel.json": host_kernel(), "host/000.1.onnx": host_model()},
        qdq=qdq_model(weight, bias),
    )
    return replace(bundle, **changes)


def group():
    def stage(number, name, rows, *, pooled=False, stored=False):
        return StageTensor(
            stage=number,
            name=name,
            qdq_name=f"{name}_q",
            pooled=pooled,
            stored=stored,
            channels=C,
            rows=rows,
            cols=rows,
            pieces=((0, C),),
            px=1,
        )

    return GroupInfo(
        index=0,
        name="conv",
        ops=(
            Op(name="conv", op="conv", module="ipa"),
            Op(name="relu", op="relu", module="compare"),
            Op(name="maxpool", op="max_pool", module="pool"),
        ),
        inputs=("x",),
        outputs=("pool",),
        macs=C * C * 9 * SIZE * SIZE,
        cycles=400,
        dram_bytes=576 + 64 + 128 + 32,
        stages=(
            stage(0, "conv", SIZE),
            stage(1, "relu", SIZE),
            stage(2, "pool", OUT, pooled=True, stored=True),
        ),
        instructions=(InstructionRange(segment=0, first=1, last=6, first_word=3, last_word=54),),
    )


def program():
    load, compute, post, store = Engine.LOAD, Engine.COMPUTE, Engine.POST, Engine.STORE
    once = {"rows": 1, "blocks": 1}
    spec_hash = {"hash_lo": HW.spec_hash & 0x3FFFFF, "hash_hi": HW.spec_hash >> 22}
    conv = {
        "row_pitch": SIZE,
        "block_pitch": SIZE * SIZE,
        "in_rows": SIZE,
        "in_cols": SIZE,
        "origin_y": -1,
        "origin_x": -1,
        "stride_y": 1,
        "stride_x": 1,
        "dilation_y": 1,
        "dilation_x": 1,
        "out_rows": SIZE,
        "out_cols": SIZE,
        "kernel_rows": 3,
        "kernel_cols": 3,
        "ic_steps": 1,
        "oc_steps": 2,
        "psum_block_pitch": SIZE * SIZE,
        "slot_log2": 3,
    }
    chain = {
        "psum_row_pitch": SIZE,
        "psum_block_pitch": SIZE * SIZE,
        "in_rows": SIZE,
        "in_cols": SIZE,
        "stride_y": 2,
        "stride_x": 2,
        "win_rows": 2,
        "win_cols": 2,
        "blocks": 1,
        "out_rows": OUT,
        "out_cols": OUT,
        "out_row_pitch": OUT,
        "out_block_pitch": OUT * OUT,
        "order": chain_of(HW).pack(ORDER),
        "act_pos": 1,
        "act_neg": 0,
        "act_lo": -128,
        "act_hi": 127,
    }
    return [
        instruction(Engine.FETCH, "check", spec_hash),
        instruction(load, "weight", {**split_address(WEIGHTS), "run": 72, **once}),
        instruction(
            load,
            "feature",
            {**split_address(INPUT), "run": SIZE * SIZE, **once},
            signals=(compute,),
        ),
        instruction(load, "param", {**split_address(PARAMS), "run": 8, **once}, signals=(post,)),
        instruction(compute, "conv", conv, waits=(load,), signals=(post,)),
        instruction(post, "run", chain, waits=(load, compute), signals=(store,)),
        instruction(
            store, "store", {**split_address(OUTPUT), "run": OUT * OUT, **once}, waits=(post,)
        ),
        instruction(Engine.FETCH, "end", {}),
    ]


def constants(weight, bias):
    """Weight rows [ky][kx][group of 4 output channels][oc][ic], then eight bytes a lane."""
    rows = weight.reshape(2, 4, C, 3, 3).transpose(3, 4, 0, 1, 2)
    params = np.zeros((C, 8), np.uint8)
    params[:, :4] = bias.astype("<i4").view(np.uint8).reshape(C, 4)
    params[:, 4] = 1
    params[:, 6] = 10  # X_SCALE * W_SCALE / Y_SCALE = 2**-10
    return np.concatenate(
        [np.ascontiguousarray(rows).view(np.uint8).reshape(-1), params.reshape(-1)]
    )


def tensor(name, qdq_name, size, offset, scale, first):
    return Tensor(
        name=name,
        qdq_name=qdq_name,
        shape=(1, C, size, size),
        layout=Layout(channels=C, rows=size, cols=size, word=8, lanes=8, slot=8),
        offset=offset,
        home=name,
        scale=scale,
        zero_point=0,
        first_group=first,
        last_group=0,
    )


def port(name, shape, value, scale):
    return Port(name=name, dtype="float32", shape=shape, value=value, scale=scale, zero_point=0)


def host_segment():
    return HostSegment(
        inputs=(("pool", "pool"),),
        outputs=(("y", "y"),),
        ops=(HostedOp("softmax", "Softmax", "no module of this machine runs it"),),
        pieces=(
            HostPiece(member="host/000.0.kernel.json", inputs=("pool",), outputs=("f",), ops=()),
            HostPiece(
                member="host/000.1.onnx",
                inputs=("f",),
                outputs=("y",),
                ops=(PieceOp("softmax", "Softmax: kernels have no such operator"),),
            ),
        ),
        cuts=(Cut("dequantise", "softmax", "softmax is no element-wise operator"),),
    )


def host_kernel():
    """Y_SCALE * pool."""
    shape = (1, C, OUT, OUT)
    op = GenericOp(
        name="dequantise",
        loops=tuple(Loop(kind=Iterator.PARALLEL, extent=extent) for extent in shape),
        inputs=(Input(value="pool", shape=shape, dtype="int8", map=identity_map(4)),),
        results=(Result(value="f", shape=shape, dtype="float32", map=identity_map(4)),),
        body=(
            Instr(op="cast", dtype="float32", args=(0,)),
            Instr(op="const", dtype="float32", literal=Y_SCALE.hex()),
            Instr(op="mul", dtype="float32", args=(2, 3)),
        ),
        yields=(4,),
    )
    return kernel_to_json(Kernel(op=op))


def host_model():
    return serialised(
        [helper.make_node("Softmax", ["f"], ["y"], axis=1)],
        inputs=[("f", TensorProto.FLOAT, (1, C, OUT, OUT))],
        outputs=[("y", TensorProto.FLOAT, (1, C, OUT, OUT))],
        initializers={},
    )


def qdq_model(weight, bias):
    data = {
        "x_s": np.float32(X_SCALE),
        "y_s": np.float32(Y_SCALE),
        "z": np.int8(0),
        "w_q": weight,
        "w_s": np.full(C, W_SCALE, np.float32),
        "w_z": np.zeros(C, np.int8),
        "b_q": bias,
        "b_s": np.full(C, X_SCALE * W_SCALE, np.float32),
        "b_z": np.zeros(C, np.int32),
    }

    def rounded(name, source, scale):
        quantised, back = f"{name}_q", f"{name}_dq"
        return [
            helper.make_node("QuantizeLinear", [source, scale, "z"], [quantised]),
            helper.make_node("DequantizeLinear", [quantised, scale, "z"], [back]),
        ]

    nodes = [
        *rounded("x", "x", "x_s"),
        helper.make_node("DequantizeLinear", ["w_q", "w_s", "w_z"], ["w"], axis=0),
        helper.make_node("DequantizeLinear", ["b_q", "b_s", "b_z"], ["b"], axis=0),
        helper.make_node("Conv", ["x_dq", "w", "b"], ["conv"], name="conv", pads=[1, 1, 1, 1]),
        *rounded("conv", "conv", "y_s"),
        helper.make_node("Relu", ["conv_dq"], ["relu"], name="relu"),
        *rounded("relu", "relu", "y_s"),
        helper.make_node(
            "MaxPool", ["relu_dq"], ["pool"], name="maxpool", kernel_shape=[2, 2], strides=[2, 2]
        ),
        *rounded("pool", "pool", "y_s"),
        helper.make_node("Softmax", ["pool_dq"], ["y"], name="softmax", axis=1),
    ]
    return serialised(
        nodes,
        inputs=[("x", TensorProto.FLOAT, (1, C, SIZE, SIZE))],
        outputs=[("y", TensorProto.FLOAT, (1, C, OUT, OUT))],
        initializers=data,
    )


def serialised(nodes, inputs, outputs, initializers):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def sample_input(seed=1, samples=1):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(0, 3, (samples, C, SIZE, SIZE)).astype(np.float32)}
