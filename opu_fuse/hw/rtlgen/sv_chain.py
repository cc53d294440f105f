"""The post chain in the SystemVerilog package: codes of `order`, positions of units, edges.

Position 0 is the exit of the chain, position 1 the requantiser, then come the units, each at the
position of the first module that uses it.
"""

from collections.abc import Iterable, Iterator, Sequence

from opu_fuse.hw.isa.table import ORDER_CODE_BITS
from opu_fuse.hw.spec.chain import HEAD, PostChain, chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.unit_rates import hold_cycles
from opu_fuse.units import BY_STAGE
from opu_fuse.units.base import Stage

_CODES = 1 << ORDER_CODE_BITS
_EXIT = 0


def sv_chain(spec: HwSpec) -> str:
    """Constants of a machine's post chain."""
    chain = chain_of(spec)
    position_of = {m.unit: i for i, m in enumerate(chain.units, _EXIT + 1)}
    return (
        "\n".join((*_codes(chain, position_of), *_places(spec, chain, position_of), *_counts(spec)))
        + "\n"
    )


def units_of(spec: HwSpec, stage: Stage) -> int:
    """Units of a stage for which there are registers: one, too, where a machine has none."""
    return max(1, chain_of(spec).banks(stage))


def stage_bits() -> int:
    """Bits that hold the number of every stage, 0 for none included."""
    return max(Stage).bit_length()


def _codes(chain: PostChain, position_of: dict[str, int]) -> Iterator[str]:
    mask = f"logic [{_CODES - 1}:0]"
    positions = [position_of[m.unit] if m else _EXIT for m in map(chain.by_code.get, range(_CODES))]
    follow = [_mask(chain.follow.get(code, ()), _CODES) for code in range(_CODES)]
    products = _mask((m.code for m in chain.modules if m.product), _CODES)
    yield f"  // Codes of `order`: {', '.join(f'{m.code} {m.name}' for m in chain.modules)}."
    yield "  // Element c of POST_PLACE, bit c of a mask: code c. POST_FOLLOW: what may come next,"
    yield "  // element 0 at the start without the array."
    bits = (max(position_of.values())).bit_length()
    yield f"  localparam int unsigned PLACE_BITS = {bits};"
    yield _array(f"{mask}[{bits - 1}:0]", "POST_PLACE", [f"{bits}'d{n}" for n in positions])
    yield _array(f"{mask}[{_CODES - 1}:0]", "POST_FOLLOW", follow)
    yield f"  localparam {mask} POST_PRODUCT = {products};"
    yield f"  localparam {mask} POST_END = {_mask(chain.ends, _CODES)};"


def _places(spec: HwSpec, chain: PostChain, position_of: dict[str, int]) -> Iterator[str]:
    units = chain.units
    count = len(units) + 1
    feeds: list[set[int]] = [set() for _ in range(count)]
    for code, targets in chain.follow.items():
        source = position_of[chain.by_code[code or HEAD].unit]
        for target in targets:
            feeds[position_of[chain.by_code[target].unit]].add(source)
        if code in chain.ends:
            feeds[_EXIT].add(source)
    stages = ["STAGE_NONE", *(f"STAGE_{m.stage.name}" for m in units)]
    banks = ["4'd0", *(f"4'd{m.bank}" for m in units)]
    wide = f"logic [{count - 1}:0]"
    yield "  // Positions in the chain: 0 its exit, 1 the requantiser, then the units; element p"
    yield "  // is position p. PLACE_FEED: positions from which it takes values."
    yield f"  localparam int unsigned POST_PLACES = {count};"
    yield _array(f"{wide}[{stage_bits() - 1}:0]", "PLACE_STAGE", stages)
    yield _array(f"{wide}[3:0]", "PLACE_BANK", banks)
    words = [f"4'd{0 if m is None else BY_STAGE[m.stage].words}" for m in (None, *units)]
    yield "  // PLACE_WORDS: parameter words of a block. POST_HOLD: cycles for which stages after"
    yield "  // the requantiser need theirs after the first iteration of the next one."
    yield _array(f"{wide}[3:0]", "PLACE_WORDS", words)
    yield f"  localparam int unsigned POST_HOLD = {hold_cycles(spec)};"
    yield _array(f"{wide}[{count - 1}:0]", "PLACE_FEED", [_bits(feed, count) for feed in feeds])


def _counts(spec: HwSpec) -> Iterator[str]:
    yield "  // Units of a stage that have registers."
    for stage in Stage:
        yield f"  localparam int unsigned {stage.name}_UNITS = {units_of(spec, stage)};"


def _array(kind: str, name: str, values: Sequence[str]) -> str:
    """A packed array; SystemVerilog writes element 0 last."""
    return f"  localparam {kind} {name} = {{{', '.join(reversed(values))}}};"


def _mask(bits: Iterable[int], width: int) -> str:
    return f"{width}'h{sum(1 << bit for bit in bits):0{width // 4}x}"


def _bits(bits: Iterable[int], width: int) -> str:
    return f"{width}'b{sum(1 << bit for bit in bits):0{width}b}"
