"""Partitions as short text, so that expectations read like the graphs."""

import functools

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import HostOp, Partition
from opu_fuse.fuse.rules.operator_rules import known_operator
from opu_fuse.fuse.rules.refusal import refuse
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from tests.dfg import canonical
from tests.fuse.worked import GRAPHS


@functools.cache
def machine(name: str) -> HwSpec:
    return load_hw(name)


@functools.cache
def worked(name: str) -> Dfg:
    return build_dfg(canonical.canonical(GRAPHS[name]))


def split(name: str, hw: str = "opu-tiny", strategy: str = "matched") -> tuple[Dfg, Partition]:
    dfg = worked(name)
    return dfg, partition(dfg, machine(hw), strategy)


def groups(dfg: Dfg, result: Partition) -> list[str]:
    """One text per group: `conv:ipa conv/bias:add`; views have no module."""
    return [
        " ".join(f"{dfg[m.node].name}:{m.module or '-'}" for m in g.matches) for g in result.groups
    ]


def rules(result: Partition) -> list[str]:
    """Names of the broken rules, in the verifier's order."""
    return [v.rule for v in result.violations]


def reasons(dfg: Dfg, result: Partition) -> dict[tuple[str, str], str]:
    """(from, to) -> reason of every boundary."""
    return {(dfg[b.source].name, dfg[b.target].name): b.why.text for b in result.boundaries}


def on_host(dfg: Dfg, result: Partition) -> dict[str, str]:
    return {dfg[h.node].name: h.why.text for h in result.host}


def hosted(node: int) -> HostOp:
    """An operator that a test puts on the host by hand."""
    return HostOp(node=node, why=refuse(known_operator, {"op": "anything"}))
