"""Strategy `dominator`: TVM's FuseOps forms functions, and `matched` cuts those that the machine
cannot run.

FuseOps is independent of the machine, so a function may use a module twice, or read an interior
value twice. Its operators are therefore grouped as by `matched`, but only within one function.
Views compute nothing: a view joins the group that computes its bytes, whatever its function. A
reader of a view is compared with the function of that group's last operator that is no view.
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
    """Groups of operators that FuseOps puts in one function, cut where the machine requires it."""
    graph = fusion_graph(context.dfg)
    function = fuse_ops(graph)

    def wanted(group: PartialGroup, node: Node) -> bool:
        return function[group.base] == function[node.index]

    def own_reason(source: int, target: int) -> Refusal | None:
        nodes, base = context.dfg.nodes, context.dfg.base(source)
        words = {
            "source": nodes[base].name,
            "source_pattern": graph.patterns[base].label,
            "target": nodes[target].name,
            "target_pattern": graph.patterns[target].label,
        }
        return refuse(other_function, words) if function[base] != function[target] else None

    return replace(grow(context, forbid, wanted), own_reason=own_reason)
