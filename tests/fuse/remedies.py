"""Every remedy of a partition, and what it names."""

import re
from collections.abc import Iterator

import onnx

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.rules.refusal import Lever
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.model.names import names_of
from opu_fuse.units.base import ModuleKind

_WORD = r"(?<![\w/.:-])(?:{})(?![\w/:-])"
_KEY = re.compile(r"`(dataflow|buffers)\.([\w.-]+)`")


def levers(partition: Partition) -> Iterator[tuple[str, Lever]]:
    """With the sentence in which each stands."""
    for why in (*(b.why for b in partition.boundaries), *(h.why for h in partition.host)):
        yield from ((why.reason, lever) for lever in why.levers)


def strange_names(
    model: onnx.ModelProto, dfg: Dfg, hw: HwSpec, partition: Partition
) -> Iterator[str]:
    """Remedies that name what is neither in the user's file nor in the spec, with the name."""
    users = names_of(model.graph) | {name for node in model.graph.node for name in node.input}
    own = {name for node in dfg.nodes for name in (node.name, node.value)} - users - {""}
    words = {*_words_of(hw), "max_pool"}
    strange = sorted(own - words, key=len, reverse=True)
    pattern = re.compile(_WORD.format("|".join(map(re.escape, strange)))) if strange else None
    for reason, lever in levers(partition):
        if pattern is not None and (found := pattern.search(lever.text)):
            yield f"{found[0]!r}, which is not in the file: {reason}"
        for section, path in _KEY.findall(lever.text):
            if (name := _missing_key(hw, section, path, lever.text)) is not None:
                yield f"{name!r}, which is not in the spec: {reason}"


def _words_of(hw: HwSpec) -> set[str]:
    flow = hw.dataflow
    return {*flow.modules, *flow.operators, *map(str, ModuleKind)}


def _missing_key(hw: HwSpec, section: str, path: str, text: str) -> str | None:
    """The part of a key that the spec has not."""
    first, *rest = path.split(".")
    if section != "dataflow":
        return None if hasattr(getattr(hw, section), first) else path
    if first == "modules" and rest:
        return None if rest[0] in hw.dataflow.modules else rest[0]
    if first == "edges" and rest:
        named = re.search(r"` to \[([^\]]*)\]", text)
        ends = [rest[0], *(named[1].split(", ") if named else ())]
        return next((end for end in ends if end not in hw.dataflow.modules), None)
    return None if first in {"modules", "edges", "operators"} else path
