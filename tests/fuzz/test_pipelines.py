"""The random machines themselves: most are accepted, and they have what pipelines can have."""

import dataclasses

import pytest
import yaml

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text
from opu_fuse.pipeline import compile_model
from tests.fuzz.orders import order_mistake
from tests.fuzz.pipelines import KIND
from tests.fuzz.random_machine import attempted
from tests.fuzz.smaller_machine import smaller
from tests.networks.test_pooling_halos import POOLS, always, carried, pooled  # noqa: F401 a fixture

DRAWN = 60


def accepted(text):
    try:
        load_hw_text(text)
    except SpecError:
        return False
    return True


def test_most_machines_are_accepted_and_they_differ():
    texts = [attempted(seed, 0) for seed in range(DRAWN)]
    sound = [load_hw_text(text) for text in texts if accepted(text)]
    assert len(sound) > DRAWN / 2
    modules = [list(hw.dataflow.modules.values()) for hw in sound]
    assert len({str(m.kind) for ms in modules for m in ms}) == 14, "not every kind that is built"
    assert any(sum(m.kind == "comparator" for m in ms) > 3 for ms in modules)
    assert any(m.unit for ms in modules for m in ms)
    assert any(mode.px > 1 for hw in sound for mode in hw.array.modes)


def test_a_seed_gives_the_same_machine_every_time():
    assert KIND.draw(7) == KIND.draw(7)


def test_smaller_machines_are_smaller_and_some_are_sound():
    tree = yaml.safe_load(KIND.draw(3).machine)
    found = [yaml.safe_dump(candidate) for candidate in smaller(tree)]
    assert all(len(text) < len(yaml.safe_dump(tree)) + 2 for text in found)
    assert sum(map(accepted, found)) > len(found) / 4


@pytest.mark.usefixtures("always")
def test_a_sum_that_joins_maxima_of_two_tiles_is_no_operator_of_its_group():
    hw = load_hw("opu-tiny")
    made = compile_model(pooled(POOLS["padding above"]), hw)
    assert carried(made)
    assert order_mistake(made.dfg, made.partition, made.plan, hw) is None
    groups = [
        dataclasses.replace(g, matches=g.matches[:-1]) if len(g.matches) > 1 else g
        for g in made.partition.groups
    ]
    wrong = dataclasses.replace(made.partition, groups=tuple(groups))
    assert "not the same" in str(order_mistake(made.dfg, wrong, made.plan, hw))
