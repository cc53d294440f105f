"""The graph of a spec makes the machine: several modules of a kind, in any order, before the array
and behind it. Every tensor has ONNX Runtime's bits, on the functional engine and in RTL.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.rtl.session import hold_rtl_against_functional
from tests.tiers import by_night

HEAD = '<ir_version: 10, opset_import: ["" : 17]> g '
MACHINES = {
    "two comparators": """
extends: opu-tiny
name: two-comparators
description: a comparator in front of the residual adder and one behind it
dataflow:
  modules:
    second: {kind: comparator, exit: true}
  edges:
    compare: [res_add]
    res_add: [second]
    second:  [pool]
""",
    "affines and clamps": """
extends: opu-tiny
name: four-before
description: four modules before the array, in either of two orders
buffers:
  pre: {words: 96, banks: 2}
dataflow:
  modules:
    shift: {kind: adder, operand: per_channel, bypass: true}
    first: {kind: comparator, bypass: true}
    scale: {kind: multiplier, operand: per_channel, bypass: true}
    second: {kind: comparator, bypass: true}
  edges:
    concat: [shift, scale, pad]
    shift:  [first, pad]
    first:  [scale, pad]
    scale:  [second, pad]
    second: [shift, pad]
  operators:
    add:        [adder, res_adder]
    multiply:   [multiplier]
    batch_norm: [multiplier]
""",
    "two pools, two tables": """
extends: opu-tiny
name: twice
description: pools and tables in front of the residual adder and behind it
buffers:
  table: {words: 512, banks: 2}
dataflow:
  modules:
    early_table: {kind: table, exit: true}
    late_table:  {kind: table, exit: true}
    late_pool:   {kind: pool, exit: true, limits: {dilation: 1}}
  edges:
    add:         [early_table, pool]
    early_table: [res_add, pool]
    pool:        [res_add]
    res_add:     [late_table, late_pool, compare]
    late_table:  [late_pool]
    compare:     [late_pool]
    late_pool:   []
  operators:
    table: [table]
""",
    "two of each in a pass": """
extends: opu-tiny
name: two-of-each
description: slopes, a gate and a table in front of the pool, a table, a sum and slopes behind it
buffers:
  table: {words: 1024, banks: 2}
  param: {words: 96}
dataflow:
  modules:
    first_slopes: {kind: prelu, operand: per_channel, bypass: true, exit: true}
    gate:         {kind: se, operand: per_channel, bypass: true, exit: true}
    first_table:  {kind: table, bypass: true, exit: true}
    pool:         {bypass: true}
    last_table:   {kind: table, bypass: true, exit: true}
    res_add:      {bypass: true}
    last_slopes:  {kind: prelu, operand: per_channel, bypass: true, exit: true}
  edges:
    add:          [first_slopes, gate]
    first_slopes: [gate]
    gate:         [first_table]
    first_table:  [pool]
    pool:         [last_table]
    last_table:   [res_add]
    res_add:      [last_slopes]
    last_slopes:  [compare]
    compare:      []
  operators:
    table: [table]
    prelu: [prelu]
    multiply: [se]
""",
    "used again": """
extends: opu-tiny
name: used-again
description: comparator, residual adder and channel affine that a pass comes to twice
buffers:
  pre: {words: 96, banks: 2}
dataflow:
  modules:
    scale:   {kind: multiplier, operand: per_channel, bypass: true, uses: 2}
    clamp:   {kind: comparator, bypass: true, uses: 2}
    compare: {uses: 2}
    res_add: {uses: 2}
  edges:
    concat: [scale, pad]
    scale:  [clamp, pad]
    clamp:  [scale, pad]
  operators:
    multiply: [multiplier]
""",
    "six stages": """
extends: opu-tiny
name: six-stages
description: five comparators in a row
dataflow:
  modules:
    second: {kind: comparator, exit: true}
    third:  {kind: comparator, exit: true}
    fourth: {kind: comparator, exit: true}
    fifth:  {kind: comparator, exit: true}
  edges:
    compare: [second]
    second:  [third]
    third:   [fourth]
    fourth:  [fifth]
""",
    "slopes of channels": """
extends: opu-tiny
name: slopes
description: slopes of channels behind the array, the residual adder or nothing
dataflow:
  modules:
    slopes: {kind: prelu, operand: per_channel, bypass: true, exit: true}
  edges:
    concat:  [pad, ipa, slopes, compare, pool]
    add:     [slopes, compare, res_add, pool]
    slopes:  [compare, pool, res_add]
    res_add: [slopes, compare, pool]
  operators:
    prelu: [prelu]
""",
}
NETWORKS = {
    "two comparators": """(float[1,8,9,9] x) => (float[1,8,4,4] y)
    <float[8,8,3,3] w, float lo = {0}, float hi = {2}>
    { a = Relu(x)  c = Conv<pads=[1,1,1,1]>(x, w)  d = LeakyRelu<alpha=0.25>(c)  e = Add(d, a)
      f = Clip(e, lo, hi)  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(f) }""",
    "affines and clamps": """(float[1,11,7,7] x) => (float[1,5,7,7] y, float[1,5,7,7] z)
    <float[11,1,1] m, float[11,1,1] k, float[5,11,3,3] w, float[5,11,3,3] v>
    { a = Add(x, m)  b = Relu(a)  c = Mul(b, k)  d = Relu(c)  y = Conv<pads=[1,1,1,1]>(d, w)
      e = Mul(x, k)  f = Relu(e)  g = Add(f, m)  z = Conv<pads=[1,1,1,1]>(g, v) }""",
    "two pools, two tables": """(float[1,8,9,9] x, float[1,8,8,8] u)
    => (float[1,8,4,4] y, float[1,8,8,8] z)
    <float[8,8,3,3] w, float[8,8,2,2] v>
    { c = Conv<pads=[1,1,1,1]>(x, w)  s = Sigmoid(c)  a = Add(s, x)
      y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)
      d = Conv(x, v)  p = MaxPool<kernel_shape=[2,2], pads=[0,0,1,1]>(d)  q = Add(p, u)
      z = Tanh(q) }""",
    "two of each in a pass": """(float[1,11,9,9] x, float[1,19,9,9] g, float[1,19,1,1] h,
    float[1,19,5,5] u) => (float[1,19,5,5] y, float[1,19,5,5] z)
    <float[19,11,3,3] w, float[19,11,1,1] v, float[19,1,1] s, float[19,1,1] t>
    { c = Conv<pads=[1,1,1,1]>(x, w)  d = PRelu(c, s)  e = Mul(d, g)  f = Elu(e)
      p = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(f)  q = Softplus(p)
      r = Add(q, u)
      y = PRelu(r, t)
      a = Conv<strides=[2,2]>(x, v)  b = Mul(a, h)  z = Add(u, b) }""",
    "used again": """(float[1,11,9,9] x, float[1,19,9,9] g, float[1,19,9,9] u)
    => (float[1,19,9,9] y, float[1,5,9,9] z)
    <float[19,11,3,3] w, float[5,11,1,1] v, float[11,1,1] s, float[11,1,1] t,
     float lo = {-1}, float hi = {2}>
    { c = Conv<pads=[1,1,1,1]>(x, w)  d = LeakyRelu<alpha=0.25>(c)  e = Add(d, g)
      f = Clip(e, lo, hi)  y = Add(f, u)
      k = Mul(x, s)  m = Relu(k)  n = Mul(m, t)  o = Clip(n, lo, hi)  z = Conv(o, v) }""",
    "six stages": """(float[1,8,5,5] x) => (float[1,8,5,5] y)
    <float[8,8,1,1] w, float lo = {-2}, float hi = {2}>
    { c = Conv(x, w)  d = LeakyRelu<alpha=0.5>(c)  e = Clip(d, lo, hi)  f = LeakyRelu<alpha=0.25>(e)
      g = Clip(f, lo, hi)  y = Relu(g) }""",
    "slopes of channels": """(float[1,11,9,9] x)
    => (float[1,19,4,4] y, float[1,11,9,9] z, float[1,11,9,9] q, float[1,43,1,1] r)
    <float[19,11,3,3] w, float[19,1,1] s, float[11,11,1,1] v, float[11,1,1] t, float[11,1,1] u,
     float[43,19,1,1] k, float[43,1,1] m>
    { c = Conv<pads=[1,1,1,1]>(x, w)  d = PRelu(c, s)
      y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)
      e = Conv(x, v)  f = Add(e, x)  z = PRelu(f, t)  q = PRelu(x, u)
      a = GlobalAveragePool(y)  g = Conv(a, k)  r = PRelu(g, m) }""",
}
PASSES = {
    "two comparators": {"y": "ipa compare res_add second pool"},
    "affines and clamps": {
        "y": "shift first scale second ipa",
        "z": "scale second shift ipa",
    },
    "two pools, two tables": {
        "y": "ipa early_table res_add late_pool",
        "z": "ipa pool res_add late_table",
    },
    "two of each in a pass": {
        "y": "ipa first_slopes gate first_table pool last_table res_add last_slopes",
        "z": "ipa gate res_add",
    },
    "used again": {
        "y": "ipa compare res_add compare res_add",
        "z": "scale clamp scale clamp ipa",
    },
    "six stages": {"y": "ipa compare second third fourth fifth"},
    "slopes of channels": {
        "y": "ipa slopes pool",
        "z": "ipa res_add slopes",
        "q": "slopes",
        "r": "ipa slopes",
    },
}


@pytest.fixture
def program(name, tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINES[name])
    model = onnx.parser.parse_model(HEAD + NETWORKS[name])
    rng = np.random.default_rng(5)
    for weight in model.graph.value_info:
        shape = [d.dim_value for d in weight.type.tensor_type.shape.dim]
        data = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        tensor = onnx.numpy_helper.from_array(data.astype(np.float32), weight.name)
        model.graph.initializer.append(tensor)
    model.graph.ClearField("value_info")
    hw = load_hw(path)
    return Program(bundle=compile_model(ir.from_proto(model), hw).bundle, hw=hw)


@pytest.mark.parametrize("name", MACHINES)
def test_a_pass_uses_every_module_that_the_graph_has(name, program):
    passes = {
        " ".join(o.module for o in group.ops if o.module and o.module != "add")
        for group in program.bundle.groups
    }
    assert set(PASSES[name].values()) <= passes


@pytest.mark.parametrize("name", MACHINES)
def test_the_functional_engine_has_onnx_runtimes_bits(name, program):
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    found = check(program.bundle, inputs, result)
    assert (found.mismatches, found.first) == (0, None)
    assert found.elements


ON_RTL = {"two of each in a pass"}


@pytest.mark.rtl
@pytest.mark.parametrize("name", by_night(MACHINES, MACHINES.keys() - ON_RTL))
def test_the_rtl_has_the_functional_engines_bits(name, program):
    inputs = noise(program.bundle)
    functional = program.run(inputs, capture=True)
    rtl = program.run(inputs, engine="rtl", capture=True)
    hold_rtl_against_functional(program.bundle, functional, rtl)
    cycles = program.run(engine="cycle").counters["cycles"]
    assert cycles == rtl.counters["cycles"]
