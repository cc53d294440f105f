"""FPGA resources that a machine uses, in closed form: tables, multipliers and block RAM.

A machine is a few parts, each the sum of physical terms (bits that an adder or a multiplexer has,
lanes that a stage has, blocks that a memory consists of). Terms follow from the spec, here; the
cost of one on a family of devices was fitted to Yosys (`benchmarks/area.py`), see
`coefficients.py`. Memories need no fit: their tables and blocks are counted.
"""

from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.errors import SpecError
from opu_fuse.hw.im2row_window import supports_im2row
from opu_fuse.hw.memories import Family, blocks, memories
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec
from opu_fuse.units import POST
from opu_fuse.units.base import Stage, Unit
from opu_fuse.units.pool import POOL

Terms = Mapping[str, float]
Costs = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Part -> `lut` or `dsp` -> cells that one of a term takes."""

SLICED_BITS = 9
"""Narrower products are built from LUTs on the 7-series; ECP5 has multipliers for all."""


class Area(Struct, frozen=True, kw_only=True):
    """Resources of a device or a part, in cells of its family."""

    lut: float = 0
    dsp: float = 0
    bram: float = 0

    def __add__(self, other: "Area") -> "Area":
        return Area(lut=self.lut + other.lut, dsp=self.dsp + other.dsp, bram=self.bram + other.bram)


def area(spec: HwSpec, family: Family) -> Area:
    """Resources of a complete buildable machine, in whole cells (halves of block RAM)."""
    total = sum(parts(spec, family).values(), Area())
    return Area(lut=round(total.lut), dsp=round(total.dsp), bram=round(2 * total.bram) / 2)


def parts(spec: HwSpec, family: Family) -> dict[str, Area]:
    """Part of the machine -> what it takes, in the order in which data passes them. Raises
    SpecError for a machine that cannot be built.
    """
    from opu_fuse.hw.area.coefficients import FITTED

    return priced(spec, family, FITTED[family])


def priced(spec: HwSpec, family: Family, costs: Costs) -> dict[str, Area]:
    """`parts` with costs of the caller."""
    if not spec.build:
        raise SpecError(
            spec.name,
            "there is no hardware of it to estimate (build: false)",
            "choose another machine",
        )
    results = {}
    for part, terms in terms_of(spec, family).items():
        own = memory_area(spec, part, family)
        fitted = {
            kind: sum(cost * terms.get(term, 0) for term, cost in costs[part][kind].items())
            for kind in ("lut", "dsp")
        }
        results[part] = own + Area(**fitted)
    return results


def memory_area(spec: HwSpec, part: str, family: Family) -> Area:
    """Resources of the memories of a part alone: counted, not fitted."""
    total = Area()
    for memory in memories(spec):
        if memory.part == part:
            lut, bram = blocks(memory, family)
            total += Area(lut=memory.count * lut, bram=memory.count * bram)
    return total


def terms_of(spec: HwSpec, family: Family) -> dict[str, Terms]:
    """Part -> its terms. `one` is what a part takes whatever the spec says."""
    word, lanes, chain = spec.word_channels, spec.post.lanes, chain_of(spec)
    px = max(mode.px for mode in spec.array.modes)
    shifts = spec.numeric.multiplier_bits == 0
    product = any(m.product for m in chain.modules)
    bus = 8 * spec.dram.bus_bytes
    port = 8 * max(spec.word_bytes, spec.buffers.weight.width)
    edges = sum(map(len, chain.follow.values())) + len(chain.ends)
    window, buffers, residuals = spec.array.depthwise, spec.buffers, chain.banks(Stage.RESIDUAL)
    sides, im2row = spec.residual_lanes * residuals, supports_im2row(spec)
    return {
        "control": {"one": 1, "bus bits": bus},
        "fetch": {"one": 1, "bus bits": bus},
        "issue": {"one": 1, "queue address bits": _queue_bits(spec)},
        "load": {
            "one": 1,
            "bus bits": bus,
            "port bits": port,
            "im2row": im2row,
            "im2row lanes": word * im2row,
        },
        "buffers": {"one": 1, "lanes": word, "lanes written alone": word * im2row},
        "affine": {
            "units": chain.pre_units,
            "lanes": word * chain.pre_units,
            "gates": chain.gates,
            "gated lanes": word * chain.gates,
        },
        "compute": {
            "one": 1,
            "lanes": word,
            "modes": len(spec.array.modes),
            "products of feature addresses": _multiplied(buffers.feature),
            "products of psum addresses": _multiplied(buffers.psum),
        },
        "window": {"one": window, "lanes": word * window},
        "array": _array_terms(spec, family),
        "accumulate": {"one": 1, "lanes": word},
        "post_walk": {
            "one": 1,
            "stages": len(chain.modules),
            "residual units": residuals,
            "products of psum addresses": _multiplied(buffers.psum),
            "products of residual addresses": residuals * _multiplied(buffers.residual),
        },
        "post": {"one": 1, "edge lanes": lanes * edges, "edges": edges},
        "requant": {
            "one": 1,
            "lanes of multipliers": lanes * (not shifts),
            "lanes of shifters": lanes * shifts,
            "lanes that wait for a turn": word - lanes,
        },
        **{unit.part: _stage(spec, unit) for unit in POST if unit.runs},
        "pool": _stage(spec, POOL)
        | {"folded lanes": lanes * (px > 1), "lanes folded twice": lanes * (px > 2)},
        "residual": {
            "units": residuals,
            "units that scale zeros": residuals * (not shifts and not product),
            "lanes of multipliers": sides
            * (not shifts and not product and not spec.post.residual_tables),
            "lanes of tables": sides * spec.post.residual_tables,
            "lanes of shifters": sides * (shifts and not product),
            "lanes of products": sides * product,
        },
        "store": {"one": 1, "bus bits": bus, "lanes": word},
    }


def multiplies(part: str, term: str) -> bool:
    """Whether a term may cost multipliers: in the array its products, of addresses no lanes."""
    if part == "array":
        return "products" in term
    return part not in ("compute", "window", "post_walk", "store") or "lanes" not in term


def _stage(spec: HwSpec, unit: Unit) -> dict[str, float]:
    """Area terms of a kind of unit after the array that has no terms of its own."""
    units = chain_of(spec).banks(unit.stage)
    return {"units": units, "lanes": units * spec.post.lanes}


def _multiplied(buffer: Buffer) -> bool:
    """Whether its addresses are so wide that the 7-series multiplies them in slices."""
    return (buffer.words - 1).bit_length() >= SLICED_BITS


def _queue_bits(spec: HwSpec) -> int:
    queues = spec.queues
    depths = (queues.load, queues.compute, queues.post, queues.store)
    return sum((depth - 1).bit_length() for depth in depths)


def _array_terms(spec: HwSpec, family: Family) -> Terms:
    """Bits of the multiplexers and adders of the array (`opu_array_exact`), and its multipliers.

    Where these are 25 bits wide, two units that read the same operands in every mode share them
    (`pairs`), so that one multiplies two weights, and two slices add their products up; the others
    share nothing. With multipliers of 18 bits (ECP5: `OPU_SHORT_SLICES`) none shares.
    """
    array, word = spec.array, spec.word_channels
    units, terms = array.units, array.multipliers
    px = max(mode.px for mode in array.modes)
    segments = word // terms
    wide = family is Family.XC7
    paired = (
        wide
        and not (array.depthwise and array.window_cycles == 1)
        and units // px % (2 * segments) == 0
        and terms > 1
        and terms & (terms - 1) == 0
    )
    lanes = min(units, word)
    rows = 2 * word // lanes if array.depthwise else 2
    levels = (segments - 1).bit_length()
    unit_bits = 16 + (terms - 1).bit_length()
    sum_bits = unit_bits + levels
    groups = units // 2 if paired else units
    sliced = array.slice_terms
    chained = wide and sliced % 2 == 0
    tree = _tree_bits(sliced // 2, 17) if chained else _tree_bits(sliced, 16)
    sums = units * _tree_bits(array.table_terms // 2 + 1, 16, unit_bits)
    columns = 1 << (array.window_side + 3).bit_length()
    operands = {_operands(spec, unit) for unit in range(units)}
    return {
        "weight bits": 0 if paired else 8 * units * terms * (rows - 1),
        "entering bits": 9 * spec.buffers.weight.width if paired else 0,
        "operand choices": 8 * terms * sum(_tables(len(set(each))) for each in operands),
        "adder bits": groups * tree * (2 if paired else 1) + sums,
        "combined bits": sum_bits * sum(units >> level for level in range(1, levels + 1)),
        "sum choices": sum_bits * sum(_tables(_sums(spec, lane) + 1) for lane in range(word)),
        "aligned bits": 8 * sum(_shifted_bytes(spec, pixel) for pixel in range(px)),
        "lanes": word,
        "window choices": array.depthwise * array.window_side**2 * 8 * word * columns,
        "window bits": array.depthwise * array.window_side * 8 * word * columns,
        "shared products": groups * sliced if paired else 0,
        "products": 0 if paired else groups * sliced,
        "terms in tables": units * array.table_terms,
    }


def _tables(choices: int) -> int:
    """Tables of six inputs that choose a bit: the first takes four, each further one three more."""
    return -(-(choices - 1) // 3)


def _operands(spec: HwSpec, unit: int) -> tuple[tuple[int, int], ...]:
    """(pixel, part) of the segment that a unit reads, by mode; then the taps of its own lane, or
    those of its pair's lanes.
    """
    array = spec.array
    results = [
        (unit // (array.units // m.px), unit % (m.ic // array.multipliers)) for m in array.modes
    ]
    segments = spec.word_channels // array.multipliers
    halved = array.window_cycles == 2
    own = unit // (2 * segments) * segments + unit % segments if halved else unit
    return (*results, (-1, own)) if array.depthwise else tuple(results)


def _sums(spec: HwSpec, lane: int) -> int:
    """How many different sums of units may come into a lane."""
    array, word = spec.array, spec.word_channels
    part = min(array.units, word)
    result = {(1, lane % part)} if array.depthwise else set()
    for m in array.modes:
        of_pixel = word // m.px
        result.add((m.ic // array.multipliers, lane // of_pixel * m.oc + lane % of_pixel % m.oc))
    return len(result)


def _shifted_bytes(spec: HwSpec, pixel: int) -> int:
    """Bytes after all layers of the shifter of a pixel (`opu_byte_shift`)."""
    words = spec.word_channels if pixel == 0 else 0
    out = max([words, *(m.ic for m in spec.array.modes if m.px > pixel)])
    bits = (spec.word_bytes - 1).bit_length() + (pixel > 0)
    layers = (bits + 1) // 2
    return sum(out + 4 ** (layers - layer) - 1 for layer in range(1, layers + 1))


def _tree_bits(terms: int, width: int, first: int = 0) -> int:
    """Bits of all adders of a tree. first: of the lowest term and of all sums with it, when it is
    wider than the others.
    """
    total, level = 0, 0
    while terms > 1:
        level += 1
        total += terms // 2 * (width + level)
        total += max(first - width - level, 0)
        terms = (terms + 1) // 2
    return total


def share(needs: Area, device: Area) -> float:
    """The largest part of one kind of cell that something takes of a device."""
    return max(needs.lut / device.lut, needs.dsp / device.dsp, needs.bram / device.bram)
