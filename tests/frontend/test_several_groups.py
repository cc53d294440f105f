"""GroupNorms of several groups become norms of rows; the `canonical` fixture compares results."""

import numpy as np
import pytest

from opu_fuse.frontend.editing import standard_nodes
from opu_fuse.model.composites import composites
from opu_fuse.model.norms import machine_norm
from opu_fuse.model.products import is_turn
from opu_fuse.normalisation import BY_ROWS
from tests.networks.several_groups import grouped, line

NORMS = ("GroupNormalization", "LayerNormalization")
SPELLINGS = {
    "between": (grouped(24, 4, (5, 7)), (1, 35, 4, 6)),
    "a group for two channels": (grouped(8, 4, (3, 3)), (1, 9, 4, 2)),
    "an operator of opset 21": (grouped(12, 3, (6, 3), form="group"), (1, 18, 3, 4)),
    "scales of groups": (
        grouped(8, 4, (3, 3), constants={"one": np.arange(1.0, 5.0), "zero": np.arange(4.0)}),
        (1, 9, 4, 2),
    ),
}
ALONE = {
    "an instance": (grouped(10, 10, (6, 5), form="instance"), (1, 30, 1, 10)),
    "between": (grouped(10, 10, (3, 5)), (1, 15, 1, 10)),
    "a signal": (line(12, 40), (1, 40, 1, 12)),
}


def norms(model) -> list:
    """Norms that a machine runs."""
    found = composites(model.graph)
    each = (machine_norm(node, found.get(node), NORMS) for node in model.graph)
    return [norm for norm in each if norm is not None]


@pytest.mark.parametrize("name", SPELLINGS)
def test_groups_are_rows_of_a_turned_map(name, canonical):
    model, shape = SPELLINGS[name]
    found = canonical(model, rewriting=True, norms=NORMS)
    (norm,) = norms(found)
    assert norm.op == "group_norm"
    assert norm.attrs[BY_ROWS]
    assert tuple(norm.source.shape) == shape
    assert sum(map(is_turn, found.graph)) == 2


@pytest.mark.parametrize("name", ALONE)
def test_single_channels_are_pixels_of_a_turned_map(name, canonical):
    model, shape = ALONE[name]
    found = canonical(model, rewriting=True, norms=NORMS)
    (norm,) = norms(found)
    assert (norm.op, tuple(norm.source.shape)) == ("layer_norm", shape)
    assert sum(map(is_turn, found.graph)) == 2


STAYS = {
    "more pixels than parameters hold": (grouped(4, 2, (65, 64)), NORMS),
    "more values than sums hold": (grouped(80, 2, (64, 64)), NORMS),
    "a machine without norms of maps": (SPELLINGS["between"][0], NORMS[1:]),
    "a machine without norms": (SPELLINGS["between"][0], ()),
}


@pytest.mark.parametrize("name", STAYS)
def test_the_host_normalises(name, canonical):
    model, operators = STAYS[name]
    found = canonical(model, rewriting=True, norms=operators)
    assert standard_nodes(found.graph, "InstanceNormalization")
    assert not norms(found)


def test_one_group_is_a_norm_of_the_map(canonical):
    (norm,) = norms(canonical(grouped(8, 1, (3, 3)), rewriting=True, norms=NORMS))
    assert norm.op == "group_norm"
    assert BY_ROWS not in norm.attrs
