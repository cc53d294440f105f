"""The object that `opu-fuse partition --json` prints (plain dicts and lists; keys and their order
are part of the interface).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.search_report import search_json
from opu_fuse.hw.spec.hw_spec import HwSpec

SCHEMA_VERSION = 1


def partition_to_json(dfg: Dfg, hw: HwSpec, partition: Partition) -> dict[str, Any]:
    """A partition by names: operators by node name, `inputs` and `outputs` of groups by value name.

    `search` exists only when the strategy searched. `copies` and `rewrites` exist only where the
    compiler adds or changed operators; they are separate from the groups.
    """
    tree: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": dfg.name,
        "hw": hw.name,
        "strategy": partition.strategy,
        "legal": partition.legal,
        "violations": [
            {"rule": v.rule, "nodes": _names(dfg, v.nodes), "text": v.text}
            for v in partition.violations
        ],
        "groups": [
            {
                "index": g.index,
                "ops": [
                    {"name": dfg[m.node].name, "op": _operator(dfg, m.node), "module": m.module}
                    for m in g.matches
                ],
                "inputs": [dfg[i].value for i in g.inputs],
                "outputs": [dfg[i].value for i in g.outputs],
            }
            for g in partition.groups
        ],
        "host": [
            {"name": dfg[h.node].name, "op": _operator(dfg, h.node), "reason": h.reason}
            for h in partition.host
        ],
        "boundaries": [
            {"from": dfg[b.source].name, "to": dfg[b.target].name, "reason": b.reason}
            for b in partition.boundaries
        ],
    }
    if partition.copies:
        tree["copies"] = _with_reasons(partition.copies)
    if partition.rewrites:
        tree["rewrites"] = _with_reasons(partition.rewrites)
    if partition.search is not None:
        tree["search"] = search_json(dfg, partition.search)
    return tree


def _with_reasons(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "reason": reason} for name, reason in reasons.items()]


def _names(dfg: Dfg, nodes: Sequence[int]) -> list[str]:
    return [dfg[i].name for i in nodes]


def _operator(dfg: Dfg, index: int) -> str:
    return dfg[index].op.removeprefix("host:")
