"""Concatenated maps that share words.

The operands of a joined concatenation lie one behind the other. A map that the array makes can
begin inside a word: its weights put the channels into the free lanes, its stores skip the bytes of
the neighbours. So narrow maps (DenseNet's 32 channels in words of 64) leave no holes that their
readers would multiply by zero. One that others than the array and the host read begins a word.
"""

from collections.abc import Collection, Sequence

from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.views import elements, feature_shape
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import is_depthwise


def choose_shifts(
    dfg: Dfg,
    groups: Sequence[Sequence[int]],
    on_host: Collection[int],
    joined: Collection[int],
    hw: HwSpec,
) -> dict[int, int]:
    """First lane, inside its first word, of every value that may share words (0: it begins one), by
    DFG index. groups: their nodes in pipeline order; on_host: the other operators; joined:
    concatenations and splits that are a matter of layout.
    """
    concats = [i for i in joined if dfg[i].op == "concat"]
    if hw.word_bytes != hw.word_channels or not concats:
        return {}
    made = _made(dfg, groups, hw)
    movable = {i for i in made if _read_anywhere(dfg, i, on_host, joined, hw)}
    width, step = hw.word_channels, min(m.oc for m in hw.array.modes if m.px == 1)
    shifts: dict[int, int] = {}
    for outer in sorted(concats, reverse=True):  # the larger before those it contains
        taken = width  # lanes of the last word
        for value in dict.fromkeys(dfg.base(i) for i in elements(dfg, outer)):
            if value not in made:
                taken = width
                continue
            count = feature_shape(dfg[value].shape)[0]
            lane = -(-taken // step) * step
            first = lane if value in movable and lane + count <= width else 0
            taken = (shifts.setdefault(value, first) + count - 1) % width + 1
    return shifts


def _made(dfg: Dfg, groups: Sequence[Sequence[int]], hw: HwSpec) -> frozenset[int]:
    """Values that the array makes in any lanes."""
    found = set()
    for group in groups:
        nodes = [dfg[i] for i in group if not dfg[i].is_virtual]
        made = [n for n in nodes if n.op == "conv" and _any_lanes(dfg, n, hw)]
        sideways = any(n.op in {"add", "multiply"} and n.owner is None for n in nodes)
        if made and not sideways and nodes[-1].op != "upsample":
            found.add(nodes[-1].index)
    return frozenset(found)


def _read_anywhere(
    dfg: Dfg, value: int, on_host: Collection[int], joined: Collection[int], hw: HwSpec
) -> bool:
    """Whether only the array and the host read a value."""
    return all(
        user.index in joined
        or user.index in on_host
        or (user.op == "conv" and _any_lanes(dfg, user, hw))
        for user in _readers(dfg, value)
    )


def _any_lanes(dfg: Dfg, conv: Node, hw: HwSpec) -> bool:
    return conv.attrs["group"] == 1 and not (hw.array.depthwise and is_depthwise(dfg, conv))


def _readers(dfg: Dfg, value: int) -> list[Node]:
    """Calls that read a value, changes of view and tuples looked through."""
    found: list[Node] = []
    stack = list(dfg.users[value])
    while stack:
        node = dfg[stack.pop()]
        if node.is_virtual or node.kind in {Kind.TUPLE, Kind.TUPLE_GET}:
            stack.extend(dfg.users[node.index])
        else:
            found.append(node)
    return found
