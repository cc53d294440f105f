"""A sum of a joined map and a layer's continues the layer's group, whichever branch is longer."""

import pytest

from opu_fuse.dfg.build import build_dfg
from opu_fuse.fuse.strategies.registry import partition
from tests.dfg import canonical
from tests.fuse.reading import groups, machine

JOINED = """g (float[1,4,8,8] x, float[1,4,8,8] z, float[8,4,3,3] w) => (float[1,8,8,8] y) {
    [p] a = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)
    [q] b = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)
    [j] d = Concat<axis=1>(b, z)
    [c] c = Conv<kernel_shape=[3,3],pads=[1,1,1,1]>(x, w)
    [s] y = Add(d, c) }"""


@pytest.mark.parametrize("name", ["opu-tiny", "opu-1024"])
def test_a_sum_of_a_joined_map_runs_with_the_layer(name):
    dfg = build_dfg(canonical.canonical(JOINED))
    found = groups(dfg, partition(dfg, machine(name)))
    assert "c:ipa s:res_add" in found
