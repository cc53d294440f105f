"""opu_norm_scaling against Python's integers: random sums of every width, and all lines."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from opu_fuse.units.norm import CHANNELS_MAX, MAP_MAX
from rtl_sim.benches import norm_model
from rtl_sim.benches.cycles import ROUNDS, generator

LATENCY = 22


async def scalings(dut, values, **settings):
    """(factor, offset, shift) of (terms, total) each, one a cycle."""
    for name, value in settings.items():
        getattr(dut, f"{name}_i").value = value
    results = []
    for cycle in range(len(values) + LATENCY):
        dut.valid_i.value = int(cycle < len(values))
        if cycle < len(values):
            dut.terms_i.value, dut.values_i.value = values[cycle]
        await FallingEdge(dut.clk_i)
        if cycle >= LATENCY - 1 and len(results) < len(values):
            assert int(dut.valid_o.value)
            offset = dut.offset_o.value.to_signed()
            results.append((int(dut.factor_o.value), offset, int(dut.shift_o.value)))
    return results


async def begin(dut):
    cocotb.start_soon(Clock(dut.clk_i, 2, "step", impl="gpi").start())
    cocotb.log.warning("seed %d", cocotb.RANDOM_SEED)
    dut.rst_ni.value, dut.valid_i.value, dut.tag_i.value = 0, 0, 0
    await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    return generator()


def fitted(scaling):
    """The shift as the unit has it."""
    factor, offset, shift = scaling
    return factor, offset, min(max(shift + 6, 0), 63)


@cocotb.test()
async def deviations_of_random_sums(dut):
    rng = await begin(dut)
    for batch in range(ROUNDS):
        rms = bool(batch % 3 == 0)
        most = CHANNELS_MAX if rms else MAP_MAX
        count = int(rng.choice([2, 3, 64, most, *(1 << rng.integers(1, 18, 3)) - 1]))
        count = min(max(count, 2), most)
        least = count // 16 + 1
        shift = int(rng.integers(0, 42))
        mantissa = int(rng.integers(min(max(1, -(-least >> shift)), 65535), 1 << 16))
        epsilon = least if rng.random() < 0.4 else mantissa << shift
        x_zero = int(rng.integers(-128, 128))
        values = []
        for _ in range(200):
            mean = int(rng.integers(-128 * count, 127 * count + 1))
            if rng.random() < 0.1:
                mean = int(rng.choice([-128 * count, 127 * count, 0]))
            low = 0 if rms else -(-(mean * mean) // count)
            high = count * (65025 if rms else 16384)
            spread = int((high - low) * rng.random() ** 8)
            values.append((low + spread, mean))
        settings = {"softmax": 0, "rms": int(rms), "count": count, "epsilon": epsilon}
        settings |= {"centre": count * x_zero, "mantissa": 1, "exponent": 0}
        got = await scalings(dut, values, **settings)
        for (terms, mean), found in zip(values, got, strict=True):
            total = count * x_zero if rms else mean
            variance = (count * terms - (0 if rms else mean * mean) << 8) + epsilon
            expected = fitted(norm_model.Norm.deviation(count, total, variance))
            assert found == expected, f"{settings} {terms} {total}: {found}, not {expected}"


@cocotb.test()
async def reciprocals_of_random_sums_and_every_fraction(dut):
    rng = await begin(dut)
    every = range(1 << 19) if ROUNDS > 200 else range(0, 1 << 19, 61)
    fractions = [(1 << 19) + n for n in every]
    wide = [int(rng.integers(1, 1 << int(rng.integers(1, 42)))) for _ in range(40 * ROUNDS)]
    for sums in (fractions, wide):
        for first in range(0, len(sums), 2000):
            part = sums[first : first + 2000]
            mantissa, exponent = int(rng.integers(1, 1 << 16) + 1), int(rng.integers(-32, 17))
            settings = {"softmax": 1, "rms": 0, "count": 8, "epsilon": 0, "centre": 0}
            settings |= {"mantissa": mantissa, "exponent": exponent}
            got = await scalings(dut, [(x, 0) for x in part], **settings)
            for x, found in zip(part, got, strict=True):
                inverse, place = norm_model.reciprocal(x)
                factor = inverse * mantissa + (1 << 15) >> 16
                expected = fitted((factor, 0, place + 17 - exponent))
                assert found == expected, f"{settings} {x}: {found}, not {expected}"
