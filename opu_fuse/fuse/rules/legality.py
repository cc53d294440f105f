"""The legality rules of fusion, one predicate each. This file has those about joining a group.

A predicate gets its facts and returns None when the rule holds, else the words for the gaps of its
message. Its docstring *is* the user message, with the changes that would help (`refusal.py`): an
edit of it changes what users read, and `python -OO` would drop it. The tables:
`OPERATOR_RULES` in `operator_rules.py` (can a machine hold this operator at all), `MODULE_RULES` in
`module_rules.py` (can this module run it), `VIEW_RULES` and `EDGE_RULES` (may it join the group of
this operand) and `GROUP_RULES` (what the group's position in the pipeline forbids).

A float model and its quantised form get the same partition: rules read no scales, except to check
that registers can hold them (`held_numbers`).
"""

from bisect import bisect_left
from collections.abc import Sequence

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.views import keeps_rows, same_storage
from opu_fuse.fuse.matching.context import MatchContext, readers
from opu_fuse.fuse.rules.operator_rules import feature_size
from opu_fuse.fuse.rules.refusal import Words

MOST_NAMES = 3
"""Names written out in a message."""


# May this view (reshape) join the group that computed the bytes of `base`? (context, base, view)


def view_readers(context: MatchContext, base: Node, view: Node) -> Words | None:
    """{reader} cannot read {view} as {shape}: its values are stored as {size}

    Change: keep channels, rows and columns in {view:own}
    """
    size = feature_size(base.shape)
    if size is not None and same_storage(view.shape, base.shape):
        return None
    for user in readers(context.dfg, view.index):
        reader = context.dfg[user]
        if reader.op not in {"dense", "reshape"} and context.modules.runners(
            context.runs_as(reader)
        ):
            return {"reader": reader.name, "view": view.called, "shape": view.shape, "size": size}
    return None


# May this node join the group of this operand? (context, source, node)


def single_reader(context: MatchContext, source: Node, node: Node) -> Words | None:
    """{source} is also read by {readers}, so its value is needed in memory

    Change: compute {source:own} once for each of its readers
    """
    reading = context.readers(source.index)
    others = [u for u in reading[:4] if u != node.index]
    if not others:
        return None
    at = bisect_left(reading, node.index)
    count = len(reading) - (reading[at : at + 1] == (node.index,))
    names = [context.dfg[u].name for u in others]
    return {"source": source.called, "readers": listed(names, count)}


def not_an_output(context: MatchContext, source: Node, node: Node) -> Words | None:  # noqa: ARG001  one signature for all rules
    """{source} is an output of the model, so its value is needed in memory

    Change: take {source:own} out of the model's outputs
    """
    return {"source": source.called} if source.index in context.outputs else None


def one_shape(context: MatchContext, source: Node, node: Node) -> Words | None:
    """{source} has other rows and columns than {base}, which the group computes: {shape}

    Change: leave out {source:own}
    """
    if not source.is_virtual or node.is_virtual or keeps_rows(context.dfg, source.index):
        return None
    base = context.dfg[context.dfg.base(source.index)]
    return {"source": source.called, "base": base.called, "shape": source.shape}


VIEW_RULES = (view_readers,)
EDGE_RULES = (single_reader, not_an_output, one_shape)


# What the group's matcher state forbids; the partial group provides the facts. (words)


def other_operand(words: Words) -> Words | None:
    """{node} also reads {other}, which is computed inside the same group

    Change: let {node:own} read a second {other:own}, computed for it alone
    """
    return words


def one_fill(words: Words) -> Words | None:
    """{node} pads with zero, {pad} before it with {value}; one pass has one fill value

    Change: let {pad:own} fill with zero
    """
    return words


def used_once(words: Words) -> Words | None:
    """{module} already runs {operators} of this group

    Change: raise `dataflow.modules.{module}.uses` to {more}
    Change: add {new}
    """
    return words


def one_window(words: Words) -> Words | None:
    """{other} pools in this group already, {module} would pool its windows"""
    return words


def pipeline_path(words: Words) -> Words | None:
    """{op} cannot follow {tail} in this machine's pipeline{detail}

    Change: set `dataflow.modules.{blocked}.bypass` to true
    Change: set `dataflow.edges.{at}` to {edges}
    Change: add {new}
    """
    return words


def group_exit(words: Words) -> Words | None:
    """{module} is no exit, a group cannot end with it

    Change: set `dataflow.modules.{module}.exit` to true
    """
    return words


def forbidden(words: Words) -> Words | None:
    """{nodes} {do} not fit the machine{what}

    Change: {help}
    """
    return words


def no_group(words: Words) -> Words | None:
    """{node} is a view of {source}, which no group computes

    Change: let {node:own} follow an operator that a module runs
    """
    return words


GROUP_RULES = (
    *(other_operand, one_fill, used_once, one_window, pipeline_path),
    *(group_exit, forbidden, no_group),
)


def listed(names: Sequence[str], count: int | None = None) -> str:
    """Names for a message, the first few of `count`."""
    count = len(names) if count is None else count
    shown = ", ".join(names[:MOST_NAMES])
    return shown if count <= MOST_NAMES else f"{shown} and {count - MOST_NAMES} more"
