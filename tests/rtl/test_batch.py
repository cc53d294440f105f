"""Several images together on the RTL: the bits of single ones, in the cycles that were told."""

from dataclasses import replace

import numpy as np
import pytest

from opu_fuse.frontend.prepare import prepare
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, Program, compile_prepared
from opu_fuse.schedule import batch_blocks
from opu_fuse.sim.compare.runs import compare
from opu_fuse.sim.ports import noise
from opu_fuse.zoo.builder import Net
from tests.networks.test_batch import prepared
from tests.schedule.test_batch_blocks import everything, separable
from tests.schedule.test_fused_stacks import inverted

EVERY_MAP = Options(reuse_memory=False)
pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]


def classifier(channels, hidden, classes):
    """The end of VGG-16: three dense layers behind a map of 7x7 pixels."""
    net = Net("classifier", seed=0)
    x = net.flatten(net.input("x", (1, channels, 7, 7)), "flatten")
    for name in ("fc6", "fc7"):
        x = net.relu(net.dense(x, name, out=hidden), f"{name}.relu")
    return prepare(net.finish(net.dense(x, "fc8", out=classes)))


def hold(model, machine, images, execute, options=EVERY_MAP):
    """Bits of single images and of the functional engine, cycles of the cycle engine. execute: runs
    a program on the RTL.
    """
    hw = load_hw(machine)
    one, several = (
        Program(bundle=compile_prepared(model, hw, replace(options, batch=n)).bundle, hw=hw)
        for n in (1, images)
    )
    inputs = noise(several.bundle)
    found = execute(several, inputs)
    assert found.counters["cycles"] == several.run(engine="cycle").counters["cycles"]
    held = compare(several.bundle, several.run(inputs, capture=True), found)
    assert held.passed, held.first
    alone = one.run(inputs).outputs
    assert all(np.array_equal(found.outputs[name], array) for name, array in alone.items())


@pytest.mark.parametrize(("name", "machine"), [("windows", "opu-tiny"), ("kept", "opu-light")])
def test_a_batch_on_rtl_has_the_bits_of_single_images(name, machine, rtl):
    session = rtl(load_hw(machine))
    hold(prepared(name), machine, 3, lambda program, x: session.run(program.bundle, x))


def test_strips_of_a_batch_on_rtl_have_the_bits_of_single_images(rtl):
    """Inner maps are on chip only, a ring turns over and begins the next image at its own place."""
    session, model = rtl(load_hw("opu-tiny")), prepare(inverted(6, (9, 7), 14))
    options = Options(cascades="always")
    hold(model, "opu-tiny", 3, lambda program, x: session.run(program.bundle, x), options)


def test_rounds_of_a_batch_on_rtl_have_the_bits_of_single_images(rtl, monkeypatch):
    monkeypatch.setattr(batch_blocks, "_saved", everything)
    session, model = rtl(load_hw("opu-tiny")), prepare(separable(12, (7, 9), residual=True))
    options = Options(cascades="never")
    hold(model, "opu-tiny", 3, lambda program, x: session.run(program.bundle, x), options)


def test_dense_layers_of_a_batch_on_rtl(rtl):
    """Of VGG-16's three a hundredth of the weights; whole, in the nightly run."""
    session = rtl(load_hw("opu-1024"))
    model = classifier(64, 320, 100)
    hold(model, "opu-1024", 8, lambda program, x: session.run(program.bundle, x))


@pytest.mark.nightly
def test_the_dense_layers_of_vgg16_in_a_batch_of_eight_on_rtl():
    def execute(program, inputs):
        return program.run(inputs, engine="rtl", capture=True)

    hold(classifier(512, 4096, 1000), "opu-1024", 8, execute)
