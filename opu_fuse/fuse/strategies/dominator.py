"""Strategy `dominator`: TVM's FuseOps decides what may be one function, `matched` cuts functions
that the machine cannot run.

The rules never look at a machine, so a function may use a module twice, or read a value from inside
twice. Its operators therefore grow into groups as `matched` would let them, but only within one
function. Views are no work: they go with the group that computes their bytes, whatever function
they are in, and what reads them is measured by that group's last working operator.
"""

from msgspec.structs import replace

from opu_fuse.dfg.graph import Node
from opu_fuse.fuse.matching.context import MatchContext
from opu_fuse.fuse.matching.partial_group import NOTHING_FORBIDDEN, Forbid, PartialGroup
from opu_fuse.fuse.rules.refusal import Refusal, Words, refuse
from opu_fuse.fuse.strategies.fuseops import fuse_ops
from opu_fuse.fuse.strategies.grouping import Grouping
from opu_fuse.fuse.strategies.matched import grow
from opu_fuse.fuse.strategies.pattern_kinds import fusion_graph


def other_function(words: Words) -> Words | None:
    """FuseOps puts {target} ({target_pattern}) and {source} ({source_pattern}) in two functions

    Change: use --strategy matched, which fuses whatever the machine can run
    """
    return words


def dominator(context: MatchContext, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """Groups of operators that FuseOps puts in one function, cut where the machine needs it."""
    graph = fusion_graph(context.dfg)
    function = fuse_ops(graph)

    def wanted(group: PartialGroup, node: Node) -> bool:
        return function[group.base] == function[node.index]

    def apart(source: int, target: int) -> Refusal | None:
        nodes, base = context.dfg.nodes, context.dfg.base(source)
        words = {
            "source": nodes[base].name,
            "source_pattern": graph.patterns[base].label,
            "target": nodes[target].name,
            "target_pattern": graph.patterns[target].label,
        }
        return refuse(other_function, words) if function[base] != function[target] else None

    return replace(grow(context, forbid, wanted), apart=apart)
