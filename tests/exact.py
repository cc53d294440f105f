"""The functional engine against the golden model, tensor by tensor."""

import numpy as np

from opu_fuse.dfg.interpret import interpret
from opu_fuse.sim.engine import run


def assert_exact(found, hw, rng, shuffles=(None,)):
    """Every tensor that a compiled model's run shows, in each of the orders, is the golden model's.
    Returns the runs.
    """
    (port,) = found.bundle.inputs
    x = {port.name: rng.normal(size=port.shape).astype(np.float32)}
    golden = interpret(found.dfg, x, hw.numeric)
    values = {n.value: golden[n.index] for n in found.dfg.nodes if n.index in golden}
    runs = [run(found.bundle, hw, x, capture=True, shuffle=shuffle) for shuffle in shuffles]
    for shuffle, result in zip(shuffles, runs, strict=True):
        for tensor, got in result.tensors.items():
            made = result.masks.get(tensor, np.ones(got.shape, np.bool_))
            assert made.any(), tensor
            wrong = made & (got != values[tensor].reshape(got.shape))
            assert not wrong.any(), f"{tensor}, order {shuffle}: {wrong.sum()} differ"
    return runs


def assert_batch_has_single_bits(one, two, hw, rng):
    """A model compiled for batches of 1 and of 2 has the same outputs for two images."""
    (port,) = one.bundle.inputs
    x = {port.name: rng.normal(size=(2, *port.shape[1:])).astype(np.float32)}
    alone, together = (run(found.bundle, hw, x).outputs for found in (one, two))
    for name, y in alone.items():
        np.testing.assert_array_equal(y, together[name])
