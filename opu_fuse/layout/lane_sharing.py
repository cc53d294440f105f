"""Lane sharing: concatenated maps that share words.

The operands of a joined concatenation are stored one after the other. A map that the array computes
can begin inside a word: its weights are arranged so that its channels land in the unused lanes, and
its stores skip the bytes of the neighbours. Narrow maps (DenseNet's 32 channels in words of 64)
then leave no holes that their readers would multiply by zero. A map with other readers than the
array and the host begins a word.
"""

from collections.abc import Collection, Sequence

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.views import elements, feature_shape, readers_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import is_depthwise
from opu_fuse.units import STAGE_OF_OPERATOR


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
    concats = [i for i in joined if dfg[i].op == "concat"]
    if hw.word_bytes != hw.word_channels or not concats:
        return {}
    array_values = _made(dfg, groups, hw)
    movable = {i for i in array_values if _read_anywhere(dfg, i, on_host, joined, hw)}
    width, step = hw.word_channels, min(m.oc for m in hw.array.modes if m.px == 1)
    shifts: dict[int, int] = {}
    for outer in sorted(concats, reverse=True):  # the larger before those it contains
        used_lanes = width  # lanes of the last word
        for value in dict.fromkeys(dfg.base(i) for i in elements(dfg, outer)):
            if value not in array_values:
                used_lanes = width
                continue
            count = feature_shape(dfg[value].shape)[0]
            lane = -(-used_lanes // step) * step
            first = lane if value in movable and lane + count <= width else 0
            used_lanes = (shifts.setdefault(value, first) + count - 1) % width + 1
            if dfg.read_by_products(value):
                used_lanes = width
    return shifts


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
