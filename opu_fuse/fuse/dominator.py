"""Strategy `dominator`: TVM's FuseOps decides what may be one function, `matched` cuts functions
that the machine cannot run.

The rules never look at a machine, so a function may use a module twice, or read a value from inside
twice. Its operators therefore grow into groups as `matched` would let them, but only within one
function. Views are no work: they go with the group that computes their bytes, whatever function
they are in, and what reads them is measured by that group's last working operator.
"""

from msgspec.structs import replace

from opu_fuse.dfg.graph import Node
from opu_fuse.fuse.fuseops import fuse_ops
from opu_fuse.fuse.grouping import Grouping
from opu_fuse.fuse.growth import NOTHING_FORBIDDEN, Forbid, Growth
from opu_fuse.fuse.matched import grow
from opu_fuse.fuse.patterns import fusion_graph
from opu_fuse.fuse.refusal import Refusal, Words, refuse
from opu_fuse.fuse.scope import Scope


def other_function(words: Words) -> Words | None:
    """FuseOps puts {target} ({target_pattern}) and {source} ({source_pattern}) in two functions

    Change: use --strategy matched, which fuses whatever the machine can run
    """
    return words


def dominator(scope: Scope, forbid: Forbid = NOTHING_FORBIDDEN) -> Grouping:
    """Groups of operators that FuseOps puts in one function, cut where the machine needs it."""
    graph = fusion_graph(scope.dfg)
    function = fuse_ops(graph)

    def wanted(group: Growth, node: Node) -> bool:
        return function[group.base] == function[node.index]

    def apart(source: int, target: int) -> Refusal | None:
        nodes, base = scope.dfg.nodes, scope.dfg.base(source)
        words = {
            "source": nodes[base].name,
            "source_pattern": graph.patterns[base].label,
            "target": nodes[target].name,
            "target_pattern": graph.patterns[target].label,
        }
        return refuse(other_function, words) if function[base] != function[target] else None

    return replace(grow(scope, forbid, wanted), apart=apart)
