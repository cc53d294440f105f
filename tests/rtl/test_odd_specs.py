"""Machines that nobody drew, but `hw check` accepts: their RTL has the functional engine's bits."""

from pathlib import Path

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw, problems
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.engine import run
from opu_fuse.sim.runner import RtlOptions
from tests.fuzz.specs import KIND, spec_text
from tests.rtl.session import Session, hold_rtl_against_functional

pytestmark = pytest.mark.rtl
ROOT = Path(__file__).parents[2]

SIX = {
    "12 by 6": """\
word_channels: 24
array: {units: 12, multipliers: 6, modes: [{ic: 6, oc: 12, px: 1}]}
buffers: {weight: {words: 144, banks: 2, width: 8}}
dram: {bus_bytes: 8}
post: {lanes: 24}
""",
    "8 by 6": """\
word_channels: 24
array: {units: 8, multipliers: 6, modes: [{ic: 6, oc: 8, px: 1}]}
buffers: {weight: {words: 144, banks: 2, width: 8}}
post: {lanes: 24}
""",
}
"""Units whose share of a weight word is no whole number of words, nor of units a word."""


def hold(hw, rtl, rng, names=("tiny_odd", "tiny_residual")):
    for name in names:
        bundle = compile_model(zoo.build(name), hw, Options(reuse_memory=False)).bundle
        inputs = {
            p.name: rng.standard_normal((1, *p.shape[1:])).astype(np.float32) for p in bundle.inputs
        }
        functional = run(bundle, hw, inputs, capture=True)
        hold_rtl_against_functional(bundle, functional, rtl(hw).run(bundle, inputs))


def machine(text, folder):
    path = folder / "odd.yaml"
    path.write_text("extends: opu-tiny\nname: odd\n" + text)
    return load_hw(path)


@pytest.mark.nightly
@pytest.mark.parametrize("case", SIX)
def test_multipliers_that_are_no_power_of_two(case, rtl, rng, tmp_path):
    hold(machine(SIX[case], tmp_path), rtl, rng)


FOUND = {"explored-ecp5-85": ("OPU_SHORT_SLICES",), "explored-xc7k325t": ()}
"""Of `benchmarks/`, with what their devices' multipliers ask for (docs/explore.md)."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", FOUND)
def test_a_machine_that_a_search_has_found(name, rng):
    """As it is synthesised."""
    hw = load_hw(ROOT / "benchmarks" / f"{name}.yaml")
    as_built = RtlOptions(defines=("OPU_EXACT_WIDTHS", *FOUND[name]))
    hold(hw, lambda _: _Fresh(hw, as_built), rng)


class _Fresh:
    """As a session, with a simulator started anew for each program."""

    def __init__(self, hw, options):
        self._hw, self._options = hw, options

    def run(self, bundle, inputs):
        return run(bundle, self._hw, inputs, engine="rtl", rtl=self._options, capture=True)


ODD = 20
LARGEST_MACS = 256
"""Of a machine whose simulator is built in a minute or so."""


def odd_specs(folder):
    """The first accepted machines of the fuzzer's mutations that no other one before is like."""
    seen = set()
    for seed in range(1, 4000):
        case = KIND.draw(seed)
        path = folder / f"{seed}.yaml"
        path.write_bytes(spec_text(case).encode(errors="surrogatepass"))
        if not case.whole or problems(str(path)):
            continue
        hw = load_hw(path)
        shape = (hw.array, hw.word_channels, hw.dram.bus_bytes, hw.buffers.weight.width)
        if hw.build and hw.macs <= LARGEST_MACS and shape not in seen:
            seen.add(shape)
            yield seed, hw


@pytest.fixture(scope="module")
def odd_machines(tmp_path_factory):
    found = odd_specs(tmp_path_factory.mktemp("odd"))
    return [next(found) for _ in range(ODD)]


@pytest.mark.nightly
@pytest.mark.parametrize("place", range(ODD))
def test_odd_machines_that_are_accepted(place, odd_machines, rng):
    seed, hw = odd_machines[place]
    session = Session(hw)
    print(f"mutation {seed}: {hw.array}, words of {hw.word_channels}")
    try:
        hold(hw, lambda _: session, rng)
    finally:
        session.close()
