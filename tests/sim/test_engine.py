"""Running whole programs: ports, samples, host segments, captured tensors, counters."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.errors import ProgramError, RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.compare.complete import surviving, whole_tensors
from opu_fuse.sim.engine import run
from tests.bundle.sample import HW, OUT, SIZE, C, sample_bundle, sample_input

NAMES = ["x", "conv", "relu", "pool"]


def test_outputs_have_the_models_name_dtype_and_shape():
    result = run(sample_bundle(), HW, sample_input())
    assert list(result.outputs) == ["y"]
    assert result.outputs["y"].dtype == np.float32
    assert result.outputs["y"].shape == (1, C, OUT, OUT)
    assert np.allclose(result.outputs["y"].sum(axis=1), 1.0), "softmax ran on the host"


def test_n_samples_give_what_each_gives_alone():
    inputs = sample_input(samples=3)
    together = run(sample_bundle(), HW, inputs, capture=True)
    assert together.samples == 3
    for n in range(3):
        alone = run(sample_bundle(), HW, {"x": inputs["x"][n : n + 1]}, capture=True)
        assert np.array_equal(together.outputs["y"][n : n + 1], alone.outputs["y"])
        for name in NAMES:
            assert np.array_equal(together.tensors[name][n : n + 1], alone.tensors[name])


def test_capture_shows_stored_and_interior_tensors():
    result = run(sample_bundle(), HW, sample_input(), capture=True)
    assert sorted(result.tensors) == sorted(NAMES)
    conv, relu, pool = (result.tensors[n][0].astype(int) for n in ("conv", "relu", "pool"))
    assert conv.shape == (C, SIZE, SIZE)
    assert np.array_equal(relu, np.maximum(conv, 0))
    assert np.array_equal(pool, relu.reshape(C, OUT, 2, OUT, 2).max(axis=(2, 4)))
    assert result.masks == {}


def test_without_capture_nothing_is_kept():
    assert run(sample_bundle(), HW, sample_input()).tensors == {}


def test_interior_positions_no_window_visits_are_masked():
    """A stride of 2 with a window of 1 reads a quarter of the positions."""
    bundle = edited("run", win_rows=1, win_cols=1)
    result = run(bundle, HW, sample_input(), capture=True)
    mask = result.masks["conv"]
    assert mask.shape == (1, C, SIZE, SIZE)
    assert np.array_equal(
        mask[0, 0], np.arange(16).reshape(4, 4) % 2 + np.arange(4)[:, None] % 2 == 0
    )


def edited(opcode, **params):
    """The sample with changed registers of one instruction."""
    from opu_fuse.hw.isa.encoding import encode
    from tests.bundle.sample import PROGRAM, program
    from tests.sim.random_instructions import instruction

    changed = [
        instruction(x.engine, x.opcode, {**x.params, **params}, waits=x.waits, signals=x.signals)
        if x.opcode == opcode
        else x
        for x in program()
    ]
    words = encode(changed)
    bundle = sample_bundle()
    segment = replace(bundle.segments[0], words=len(words))
    return replace(
        bundle,
        words=words,
        segments=(segment, bundle.segments[1]),
        window_bytes=PROGRAM + 4 * len(words),
    )


def test_counters_count_instructions_and_bytes_in_all_and_per_group():
    result = run(sample_bundle(), HW, sample_input(samples=2))
    (group,) = result.groups
    assert result.counters["instructions_load"] == 6
    assert result.counters["instructions_post"] == 2
    assert result.counters["dram_bytes_read"] == group.dram_bytes_read == 2 * (576 + 64 + 128)
    assert result.counters["dram_bytes_written"] == group.dram_bytes_written == 2 * 32
    assert group.instructions == 12


def test_the_trace_names_every_retired_instruction_once():
    trace = run(sample_bundle(), HW, sample_input(samples=2)).trace
    assert [r.instruction for r in trace] == list(range(8))
    assert [r.group for r in trace] == [-1, 0, 0, 0, 0, 0, 0, -1]
    assert [r.engine for r in trace][1:7] == ["load", "load", "load", "compute", "post", "store"]


def test_shuffled_orders_give_the_same_bits():
    expected = run(sample_bundle(), HW, sample_input(), capture=True)
    orders = set()
    for seed in range(20):
        result = run(sample_bundle(), HW, sample_input(), capture=True, shuffle=seed)
        orders.add(tuple(r.instruction for r in result.trace))
        for name in NAMES:
            assert np.array_equal(result.tensors[name], expected.tensors[name])
    assert len(orders) > 1, "nothing was shuffled"


def test_a_program_for_another_machine_is_refused():
    with pytest.raises(ProgramError, match="compile the model for opu-1024"):
        run(sample_bundle(), load_hw("opu-1024"), sample_input())


WRONG_INPUTS = {
    "unknown name": ({"image": np.zeros((1, C, SIZE, SIZE), np.float32)}, r"image: is no input"),
    "wrong dtype": (
        {"x": np.zeros((1, C, SIZE, SIZE))},
        r"x: has dtype float64, expected float32\[1, 8, 4, 4\]; convert it with .astype",
    ),
    "wrong shape": (
        {"x": np.zeros((1, C, SIZE, 5), np.float32)},
        r"x: has shape \[1, 8, 4, 5\], expected \[1, 8, 4, 4\]; give \[N, 8, 4, 4\] for N samples",
    ),
    "wrong rank": ({"x": np.zeros((C, SIZE, SIZE), np.float32)}, r"has shape \[8, 4, 4\]"),
    "no samples": ({"x": np.zeros((0, C, SIZE, SIZE), np.float32)}, r"has shape \[0, 8, 4, 4\]"),
}


@pytest.mark.parametrize("kind", WRONG_INPUTS)
def test_inputs_that_do_not_fit_are_explained(kind):
    inputs, message = WRONG_INPUTS[kind]
    with pytest.raises(RunError, match=message):
        run(sample_bundle(), HW, inputs)


def two_inputs():
    bundle = sample_bundle()
    second = replace(bundle.inputs[0], name="z", value="z", scale=None)
    return replace(bundle, inputs=(*bundle.inputs, second))


def test_a_missing_input_is_named():
    with pytest.raises(
        RunError, match=r"input z: is missing; the model has: x float32\[1, 8, 4, 4\], z"
    ):
        run(two_inputs(), HW, sample_input())


def test_inputs_need_the_same_number_of_samples():
    inputs = {"x": sample_input(samples=2)["x"], "z": sample_input(samples=3)["x"]}
    with pytest.raises(RunError, match=r"different numbers of samples \(x: 2, z: 3\)"):
        run(two_inputs(), HW, inputs)


def test_without_input_there_is_noise_and_a_warning(caplog):
    first = run(sample_bundle(), HW)
    assert "no input: running on noise" in caplog.text
    again = run(sample_bundle(), HW, None)
    assert np.array_equal(first.outputs["y"], again.outputs["y"])
    assert len(np.unique(first.outputs["y"])) > 1


@pytest.mark.parametrize(("dtype", "shift"), [("int8", 0), ("uint8", 128)])
def test_integer_ports_pass_through(dtype, shift):
    bundle = sample_bundle()
    floats = sample_input()["x"]
    wanted = run(bundle, HW, {"x": floats}, capture=True)
    inside = wanted.tensors["x"]
    given = (inside.astype(int) + shift).astype(dtype)
    ports = {
        "inputs": (replace(bundle.inputs[0], dtype=dtype),),
        "outputs": (replace(bundle.outputs[0], dtype=dtype, value="pool", scale=1.0),),
    }
    found = run(replace(bundle, **ports), HW, {"x": given}, capture=True)
    assert np.array_equal(found.tensors["pool"], wanted.tensors["pool"])
    assert found.outputs["y"].dtype == dtype
    assert np.array_equal(found.outputs["y"].astype(int) - shift, wanted.tensors["pool"])


def test_quantised_outputs_are_dequantised_with_their_zero_point():
    bundle = sample_bundle()
    port = replace(bundle.outputs[0], value="pool", scale=0.25, zero_point=3)
    result = run(replace(bundle, outputs=(port,)), HW, sample_input(), capture=True)
    expected = (result.tensors["pool"].astype(np.float32) - 3) * np.float32(0.25)
    assert np.array_equal(result.outputs["y"], expected)


def test_a_host_model_that_does_not_load_ends_in_one_line():
    hosts = {**sample_bundle().hosts, "host/000.1.onnx": b"nonsense"}
    bundle = sample_bundle(hosts=hosts)
    with pytest.raises(RunError, match=r"host operator \w+: ONNX Runtime cannot load it"):
        run(bundle, HW, sample_input())


def test_a_host_model_of_another_size_than_its_port_ends_in_one_line():
    """Sizes of what the host makes are known when it has run: a damaged file can say any."""
    bundle = sample_bundle()
    port = replace(bundle.outputs[0], shape=(1, 8, 2, 3))
    wrong = replace(bundle, outputs=(port,))
    with pytest.raises(RunError, match=r"output y: has shape .*, the program says \[1, 8, 2, 3\]"):
        run(wrong, HW)


def test_an_instruction_outside_the_memories_is_named():
    with pytest.raises(
        RunError, match=r"instruction 4 \(compute.conv\): reads word 256 of the feature"
    ):
        run(edited("conv", feature=241), HW, sample_input())


def two_groups(*offsets, homes=("first", "second"), ends=(0, 1)):
    """The sample's output made by group 0 as `first`; `second`, by group 1, lies at an offset."""
    bundle = sample_bundle()
    segment = replace(bundle.segments[0], groups=(-1, 0, 0, 0, 1, 1, 1, -1))
    out = bundle.tensors[1]
    tensors = [
        replace(out, name=name, home=home, offset=out.offset + offset)
        for name, home, offset in zip(("first", "second"), homes, offsets, strict=True)
    ]
    groups = [
        replace(bundle.groups[0], index=i, outputs=(t.name,))
        for i, t in zip(ends, tensors, strict=True)
    ]
    return replace(bundle, tensors=tuple(tensors), groups=tuple(groups), segments=(segment,))


def test_tensors_overwritten_later_do_not_survive():
    size = sample_bundle().tensors[1].layout.size_bytes
    over, apart = two_groups(0, 0), two_groups(0, size)
    assert surviving(whole_tensors(over), 0) == (over.tensors[1],)
    assert surviving(whole_tensors(apart), 0) == apart.tensors


def test_a_joined_tensor_is_whole_behind_the_last_of_its_writers():
    """Whatever the order in which they end; a tensor beside it waits for its own writer alone."""
    size = sample_bundle().tensors[1].layout.size_bytes
    bundle = two_groups(0, size, homes=("both", "both"))
    layout = replace(bundle.tensors[0].layout, channels=2 * bundle.tensors[0].layout.channels)
    both = replace(bundle.tensors[0], name="both", layout=layout)
    found = whole_tensors(replace(bundle, tensors=(*bundle.tensors, both)))
    assert [(w.tensor.name, w.groups) for w in found] == [
        ("first", {0}),
        ("second", {1}),
        ("both", {0, 1}),
    ]
