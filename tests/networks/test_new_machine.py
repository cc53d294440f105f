"""A machine that nobody has seen before, described in YAML alone: odd sizes, other banks, another
order of modules. Compiler, functional engine and RTL follow it without a change.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.zoo.builder import Net
from tests.networks.test_families import execute, hold_against_golden
from tests.rtl.session import hold_rtl_against_functional

MACHINE = """
extends: opu-tiny
name: sixth
description: 96 MAC per cycle, words of 24 channels, gates before sums
word_channels: 24
array:
  units: 12
  multipliers: 8
  depthwise: true
  modes: [{ic: 8, oc: 12, px: 1}]
buffers:
  feature:  {words: 300, banks: 3}
  weight:   {words: 288, banks: 2, width: 32}
  param:    {words: 96, banks: 4}
  residual: {words: 90, banks: 1}
  psum:     {words: 140, banks: 1}
  output:   {words: 105, banks: 3}
  pre:      {words: 24, banks: 1}
  table:    {words: 256, banks: 1}
post: {lanes: 24}
queues: {load: 40, compute: 48, post: 56, store: 24}
counter_bits: 3
dram: {bus_bytes: 16, max_burst: 5, outstanding: 3, bytes_per_cycle: 12, latency: 33}
numeric: {multiplier_bits: 11, average_bits: 16}
dataflow:
  modules:
    norm:  {kind: multiplier, operand: per_channel, bypass: true}
    early: {kind: comparator, bypass: true}
    table: {kind: table, exit: true}
    gate:  {kind: se, operand: per_channel, exit: true}
    grow:  {kind: upsample, exit: true}
  edges:
    concat:  [norm]
    norm:    [early, pad]
    early:   [pad]
    add:     [gate, table, pool, res_add, compare, grow]
    table:   [gate, res_add, grow]
    gate:    [res_add, grow]
    res_add: [compare, grow]
    compare: [pool, grow]
    pool:    [grow]
  operators:
    batch_norm: [multiplier]
    concat:     [mem_rd]
    multiply:   [se]
    table:      [table]
    upsample:   [upsample]
"""


@pytest.fixture
def sixth(tmp_path: Path) -> HwSpec:
    path = tmp_path / "sixth.yaml"
    path.write_text(MACHINE, encoding="utf-8")
    return load_hw(path)


def every_module() -> ir.Model:
    """A gated depthwise block, batch norm in front of a convolution, joined and enlarged maps."""
    net = Net("every_module", seed=0)
    image = net.input("input", (1, 5, 14, 13))
    wide = net.relu6(net.conv(image, "stem", out=30, kernel=3, stride=2, pads=1), "stem.relu")
    deep = net.conv(wide, "depthwise", out=30, kernel=3, pads=1, groups=30)
    deep = net.sigmoid(deep, "depthwise.sigmoid")
    gate = net.sigmoid(
        net.conv(net.global_average_pool(deep, "squeeze"), "excite", out=30, kernel=1), "gate"
    )
    gated = net.multiply(deep, gate, "scale")
    joined = net.concat([gated, net.conv(wide, "side", out=10, kernel=1, gain=0.3)], "join")
    normed = net.relu(net.batch_norm(joined, "norm"), "norm.relu")
    summed = net.add(net.conv(normed, "mix", out=30, kernel=3, pads=1, bias=True), wide, "sum")
    large = net.upsample(net.relu(summed, "sum.relu"), "grow", scale=2)
    pooled = net.max_pool(large, "pool", kernel=3, stride=2)
    return net.finish(net.conv(pooled, "head", out=26, kernel=1))


MODELS = {"tiny_odd": lambda: zoo.build("tiny_odd"), "every_module": every_module}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_for_it_gives_the_golden_models_bits(name, sixth, rng):
    run = execute(MODELS[name](), rng, sixth)
    hold_against_golden(run)
    assert run.compiled.partition.host == ()


def test_each_of_its_modules_is_used(sixth):
    """Otherwise the network says nothing about them."""
    compiled = compile_model(every_module(), sixth)
    used = {m.module for g in compiled.partition.groups for m in g.matches}
    assert used >= {"norm", "early", "ipa", "add", "compare", "table", "gate", "grow", "pool"}
    work = [s for s in compiled.plan.segments if not isinstance(s, HostWork)]
    assert len(work) == len(compiled.plan.segments)
    opcodes = {i.opcode for s in work for i in s.instructions}
    assert opcodes >= {"conv", "depthwise", "copy", "pre", "table"}


@pytest.mark.rtl
@pytest.mark.parametrize("name", MODELS)
def test_its_rtl_gives_the_functional_engines_bits(name, sixth, rng):
    options = Options(reuse_memory=False)  # so that every stored tensor can be compared at the end
    program = Program(bundle=compile_model(MODELS[name](), sixth, options).bundle, hw=sixth)
    inputs = {
        p.name: rng.standard_normal(p.shape).astype(np.float32) for p in program.bundle.inputs
    }
    functional = program.run(inputs, capture=True)
    simulated = program.run(inputs, engine="rtl", capture=True)
    hold_rtl_against_functional(program.bundle, functional, simulated)
