"""`stored_bytes`: the very bytes that a store writes, for stores of every shape."""

import numpy as np
import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.functional.transfer import stored_bytes
from tests.sim import random_instructions as rand


@pytest.mark.parametrize("name", ["opu-tiny", "opu-light"])
def test_they_are_those_that_change(name, rng):
    spec = load_hw(name)
    dram = np.zeros(rand.WINDOW_BYTES, np.uint8)
    machine = Machine(spec, dram)
    machine.memories.output[:] = 1
    seen = 0
    while seen < 60:
        store = rand.until_fits(rand.transfer, rng, spec)
        if store.engine is not Engine.STORE:
            continue
        dram[:] = 0
        machine.execute(store)
        assert stored_bytes(store, spec).tolist() == np.flatnonzero(dram).tolist()
        seen += 1
