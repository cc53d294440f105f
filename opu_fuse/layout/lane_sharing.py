"""Lane sharing: concatenated maps that share words.

The operands of a joined concatenation are stored one after the other. A map that the array computes
can begin inside a word: its weights are arranged so that its channels land in the unused lanes, and
its stores skip the bytes of the neighbours. Narrow maps (DenseNet's 32 channels in words of 64)
then leave no holes that their readers would multiply by zero. A map with other readers than the
array and the host begins a word. So does one that would end a word later, unless the whole
concatenation takes fewer words: its stores then move one word more for each pixel.
"""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import elements, feature_shape, readers_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import Shifts, is_depthwise
from opu_fuse.units import STAGE_OF_OPERATOR


class _Part(Struct, frozen=True, kw_only=True):
    """A value in a concatenation.

    made: the array computes it and can write it to any lanes; movable: they also suit its readers;
    alone: no value after it has lanes of its last word.
    """

    value: int
    channels: int
    made: bool
    movable: bool
    alone: bool


def choose_shifts(
    dfg: Dfg,
    groups: Sequence[Sequence[int]],
    on_host: Collection[int],
    joined: Collection[int],
    hw: HwSpec,
) -> dict[int, int]:
    """First lane, inside its first word, of every value that may share words; by DFG index.

    Lane 0 means that the value begins a word. groups: their nodes in pipeline order; on_host: the
    other operators; joined: zero-copy concatenations and splits.
    """
    concats = [i for i in joined if dfg[i].op == "concat" and not _only_parts(dfg, i)]
    if hw.word_bytes != hw.word_channels or not concats:
        return {}
    array_values = _made(dfg, groups, hw)
    movable = {i for i in array_values if _read_anywhere(dfg, i, on_host, joined, hw)}
    width, step = hw.word_channels, min(m.oc for m in hw.array.modes if m.px == 1)
    shifts: dict[int, int] = {}
    for outer in sorted(concats, reverse=True):  # the larger before those it contains
        parts = [
            _Part(
                value=value,
                channels=feature_shape(dfg[value].shape)[0],
                made=value in array_values,
                movable=value in movable,
                alone=dfg.read_by_products(value),
            )
            for value in dict.fromkeys(dfg.base(i) for i in elements(dfg, outer))
        ]
        ways = (_shifts(parts, shifts, width, step, dense=dense) for dense in (False, True))
        shifts |= min(ways, key=lambda way: way[1])[0]
    return shifts


def _only_parts(dfg: Dfg, concat: int) -> bool:
    """Whether all operands of a concatenation are results of splits, which have lanes already."""
    return all(dfg[i].kind is Kind.TUPLE_GET for i in elements(dfg, concat))


def _shifts(
    parts: Iterable[_Part], known: Shifts, width: int, step: int, *, dense: bool
) -> tuple[dict[int, int], int]:
    """First lanes of values that may share words, and the words of their concatenation.

    known: those that another concatenation chose; width: lanes of a word; step: lanes at which a
    value may begin; dense: every value shares a word with its predecessor, else only where it then
    ends in fewer words.
    """
    shifts: dict[int, int] = {}
    words, used = 0, width  # used: lanes of the last word
    for part in parts:
        lane, first = -(-used // step) * step, 0
        if part.movable and lane < width:
            later = -(-(lane + part.channels) // width) > -(-part.channels // width)
            first = lane if dense or not later else 0
        if part.made:
            first = shifts[part.value] = known.get(part.value, first)
        words += -(-(first + part.channels) // width) - (first > 0)
        used = (first + part.channels - 1) % width + 1 if part.made and not part.alone else width
    return shifts, words


def _made(dfg: Dfg, groups: Sequence[Sequence[int]], hw: HwSpec) -> frozenset[int]:
    """Values that the array computes and can write to any lanes."""
    array_values = set()
    for group in groups:
        nodes = [dfg[i] for i in group if not dfg[i].is_virtual]
        layers = [
            n for n in nodes if n.op == "matmul" or (n.op == "conv" and _any_lanes(dfg, n, hw))
        ]
        reads_side_map = any(n.op in {"add", "multiply"} and n.owner is None for n in nodes)
        normalises = any(
            n.op in STAGE_OF_OPERATOR and STAGE_OF_OPERATOR[n.op].passes for n in nodes
        )
        kept = reads_side_map or normalises or nodes[-1].op in {"upsample", "permute"}
        if layers and not kept:
            array_values.add(nodes[-1].index)
    return frozenset(array_values)


def _read_anywhere(
    dfg: Dfg, value: int, on_host: Collection[int], joined: Collection[int], hw: HwSpec
) -> bool:
    """Whether only the array and the host read a value, so that any lanes suit its readers."""
    return all(
        user.index in joined
        or user.index in on_host
        or (user.op == "conv" and _any_lanes(dfg, user, hw))
        for user in readers_of(dfg, value)
    )


def _any_lanes(dfg: Dfg, conv: Node, hw: HwSpec) -> bool:
    return conv.attrs["group"] == 1 and not (hw.array.depthwise and is_depthwise(dfg, conv))
