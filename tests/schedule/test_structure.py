"""Groups that are alike are looked at once: what they are alike in is all that their shape hangs
on.
"""

from collections.abc import Hashable

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit
from opu_fuse.frontend.prepare import prepare
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.strategies.registry import partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.data_layout import layouts
from opu_fuse.layout.lanes import map_lanes
from opu_fuse.lowering.pass_geometry import structure
from opu_fuse.pipeline import compile_model, partition_model
from opu_fuse.schedule import tile_choice
from opu_fuse.schedule.lower_group import pass_of
from opu_fuse.zoo import build
from tests.dfg import canonical
from tests.fuse.random_graphs import graphs

NETWORKS = ["resnet20", "densenet_small", "shufflenet_v2", "efficientnet_b0", "unet"]
MACHINES = ["opu-1024", "opu-light", "opu-micro"]


def network(name: str) -> Dfg:
    """A network of the zoo, with float weights."""
    return build_dfg(prepare(build(name), quantised=False).canonical)


def alike(dfg: Dfg, hw: HwSpec, found: Partition) -> dict[Hashable, set[Hashable]]:
    """By all that groups are compared in: what their geometries are, or why there is none."""
    lanes = map_lanes(dfg, hw, layouts(dfg, tile_choice.members(found)))
    kinds: dict[Hashable, set[Hashable]] = {}
    for group in found.groups:
        modules = tuple(m.module for m in group.matches)
        form = modules, structure(dfg, [m.node for m in group.matches], lanes, hw)
        try:
            geometry, _ = pass_of(dfg, group, hw, lanes)
            kind: Hashable = geometry and (
                geometry.phases,
                geometry.macs,
                tuple(s.swapped for s in geometry.stages),
            )
        except DoesNotFit as error:
            kind = error.help
        kinds.setdefault(form, set()).add(kind)
    return kinds


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_groups_alike_have_one_geometry(name: str, machine: str):
    dfg, hw = network(name), load_hw(machine)
    found = partition(dfg, hw)
    kinds = alike(dfg, hw, found)
    assert all(len(kind) == 1 for kind in kinds.values())
    assert len(kinds) <= len(found.groups)


@settings(max_examples=60)
@given(graphs(), st.sampled_from(MACHINES), st.sampled_from(["matched", "none"]))
def test_groups_alike_have_one_geometry_in_random_graphs(text, machine, strategy):
    dfg, hw = build_dfg(canonical.canonical(text)), load_hw(machine)
    kinds = alike(dfg, hw, partition(dfg, hw, strategy))
    assert all(len(kind) == 1 for kind in kinds.values())


def test_repeated_groups_are_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    dfg, hw = network("resnet20"), load_hw("opu-1024")
    found = partition(dfg, hw)
    kinds = alike(dfg, hw, found)
    looked: list[int] = []
    monkeypatch.setattr(tile_choice, "pass_of", lambda *args: looked.append(1) or pass_of(*args))
    assert tile_choice.misfits_by_structure(dfg, found, hw) == ()
    assert len(looked) == len(kinds) < len(found.groups)


def test_a_stage_on_a_module_of_another_kind_is_found_without_scales_too():
    """What `partition` groups is what `compile` then makes."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,4,4] x) => (float[1,2,4,4] y) {'
        " c = Concat<axis=1>(x, x)  r = Relu(c)  y = Relu(r) }"
    )
    hw = load_hw("opu-1024")
    dfg, found = partition_model(model, hw)
    names = [[dfg[m.node].name for m in group.matches] for group in found.groups]
    made = compile_model(model, hw)
    assert names == [
        group
        for group in ([made.dfg[m.node].name for m in g.matches] for g in made.partition.groups)
        if not made.partition.copies.keys() >= set(group)
    ]
