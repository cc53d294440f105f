"""What a residual module may be told to do, and with which factors."""

import numpy as np
import pytest

from opu_fuse.sim.functional.machine import Machine
from opu_fuse.units.base import ModuleKind
from opu_fuse.units.residual import ResidualKind
from rtl_sim.benches.graph_orders import orders_of
from tests.sim.machines import without
from tests.sim.test_legal import CHAIN, FULL, ONE, SHIFTS, WINDOW, refuse, with_params

ADD = {"order": CHAIN.pack(["res_add"]), "res_kind": ResidualKind.ADD, **ONE}
MULTIPLY = {"order": CHAIN.pack(["se"]), "res_kind": ResidualKind.MULTIPLY, **ONE}
MAXIMUM = ADD | {"res_kind": ResidualKind.MAXIMUM}
WRONG = {
    "sum": (FULL, ADD | {"res_kind": 1}, "res_kind = 1, but res_add does add or maximum"),
    "product": (FULL, MULTIPLY | {"res_kind": 0}, "res_kind = 0, but se does multiply"),
    "maximum": (FULL, MULTIPLY | {"res_kind": 2}, "res_kind = 2, but se does multiply"),
    "no kind": (FULL, ADD | {"res_kind": 3}, "has res_kind = 3, but res_add does add or"),
    "no kind of se": (SHIFTS, MULTIPLY | {"res_kind": 3}, "res_kind = 3, but se does mu"),
    "factor of a sum": (SHIFTS, {**ADD, "res_b_mult": 3}, "has res_b_mult = 3, full only"),
    "factor of a product": (SHIFTS, {**MULTIPLY, "res_a_mult": 5}, "res_a_mult = 5, full"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_a_residual_module_does_not_do_is_illegal(kind):
    spec, changes, message = WRONG[kind]
    refuse(with_params("run", **changes), message, spec)


def test_the_other_residual_still_runs():
    pairs = ((ModuleKind.RES_ADDER, "se", MULTIPLY), (ModuleKind.SE, "res_add", ADD))
    for kind, name, params in pairs:
        spec = without(FULL, kind)
        one = {"out_rows": 1, "out_cols": 1, "order": orders_of(spec).pack([name])}
        Machine(spec, np.zeros(WINDOW, np.uint8)).execute(with_params("run", **params | one))


def test_a_machine_that_only_shifts_takes_powers_of_two():
    machine = Machine(SHIFTS, np.zeros(WINDOW, np.uint8))
    one = {"out_rows": 1, "out_cols": 1}
    machine.execute(with_params("run", **one, **ADD, res_a_mult=0, res_b_mult=64))
    machine.execute(with_params("run", **one, **MULTIPLY, res_a_mult=2, res_b_mult=3))
    machine.execute(with_params("run", **one, **MAXIMUM, res_a_mult=5, res_b_mult=3))


def test_a_maximum_uses_none_of_the_other_registers():
    sides = {"res_a_mult": 65535, "res_b_mult": 3, "res_shift": 63}
    sides |= {"res_a_zero": -128, "res_b_zero": 127, "res_y_zero": 99, "res_negative": 3}
    for spec in (FULL, SHIFTS):
        machine = Machine(spec, np.zeros(WINDOW, np.uint8))
        lanes = np.arange(spec.word_channels)
        value, other = 3 * lanes - 9, 126 - 36 * lanes
        machine.memories.psum[:] = value
        machine.memories.residual[:] = other
        machine.execute(with_params("run", **MAXIMUM | sides))
        x = with_params("run", **MAXIMUM).post
        assert machine.memories.output[x["out"]].tolist() == [
            max(pair) for pair in zip(value.tolist(), other.tolist(), strict=True)
        ]
