"""The random machines themselves: most are accepted, and they have what pipelines can have."""

import yaml

from opu_fuse.errors import SpecError
from opu_fuse.hw.load import load_hw_text
from tests.fuzz.pipelines import KIND
from tests.fuzz.random_machine import attempted
from tests.fuzz.smaller_machine import smaller

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
    assert len({str(m.kind) for ms in modules for m in ms}) == 12, "not every kind that is built"
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
