"""The time profile, with a clock of its own."""

from itertools import count

import pytest

from opu_fuse.passes import PassContext, PassTiming, Sequential, module_pass
from tests.passes.recorder import Recorder, recording


class Clock:
    """Stands still unless told to go on."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def pass_taking(self, name, seconds, *, error=None):
        @module_pass(name=name)
        def transform(model, _):
            self.now += seconds
            if error is not None:
                raise error
            return model, False

        return transform


def nested(clock):
    """0.5 s + 1.5 s within `inner`, which stands between two others in `all`; then one alone."""
    short, long = clock.pass_taking("Short", 0.5), clock.pass_taking("Long", 1.5)
    inner = Sequential([short, long], name="inner")
    return Sequential([clock.pass_taking("First", 1.0), inner, short], name="all"), long


def test_the_profile_is_a_tree_with_shares_of_all_and_of_the_parent(model, golden):
    clock = Clock()
    timing = PassTiming(clock=clock)
    with PassContext(instruments=[timing]):
        for pass_ in nested(clock):
            pass_(model)
    golden("profile.txt", timing.render())


def test_time_outside_inner_passes_is_the_passs_own(model):
    ticks = count()  # every look at the clock costs a second
    timing = PassTiming(clock=lambda: float(next(ticks)))
    with PassContext(instruments=[timing]):
        Sequential([recording("p", []), recording("q", [])], name="all")(model)
    (everything,) = timing.profiles
    assert [profile.name for profile in everything.inner] == ["p", "q"]
    assert (everything.seconds, everything.own_seconds) == (5.0, 3.0)


def test_a_failing_pass_is_marked_and_does_not_swallow_those_after_it(model):
    clock = Clock()
    timing = PassTiming(clock=clock)
    bad = clock.pass_taking("Bad", 1.0, error=RuntimeError("no"))
    with PassContext(instruments=[timing]):
        with pytest.raises(RuntimeError):
            Sequential([bad], name="all")(model)
        clock.pass_taking("Good", 3.0)(model)
    lines = timing.render().splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("all (failed)")
    assert lines[2].startswith("  Bad (failed)  1000.000")
    assert lines[3].split() == ["Good", "3000.000", "3000.000", "75.0", "75.0"]


@pytest.mark.parametrize("hook", ["before", "after"])
def test_an_instrument_that_fails_around_a_pass_closes_its_time_too(model, hook):
    clock = Clock()
    timing = PassTiming(clock=clock)
    broken = Recorder("r", [], broken=hook)
    with PassContext(instruments=[timing, broken]):
        with pytest.raises(RuntimeError):
            clock.pass_taking("P", 1.0)(model)
        broken.broken = ""
        clock.pass_taking("Q", 1.0)(model)
    assert [profile.name for profile in timing.profiles] == ["P", "Q"]


def test_an_error_that_an_outer_pass_survives_is_not_held_against_it(model):
    clock = Clock()
    timing, broken = PassTiming(clock=clock), Recorder("r", [], broken="after")
    inner = clock.pass_taking("Inner", 1.0)

    @module_pass(name="Tolerant")
    def tolerant(model, _):
        with pytest.raises(RuntimeError):
            inner(model)
        broken.broken = ""
        clock.now += 1.0
        return False

    with PassContext(instruments=[timing, broken]):
        tolerant(model)
    (profile,) = timing.profiles
    assert (profile.failed, profile.seconds, profile.own_seconds) == (False, 2.0, 1.0)


def test_a_skipped_pass_takes_no_time(model):
    timing = PassTiming()
    with PassContext(instruments=[timing, Recorder("r", [], refuse="p")]):
        recording("p", [])(model)
    assert timing.render() == "no pass was run"


def test_a_profile_asked_for_inside_a_pass_says_what_runs(model):
    clock = Clock()
    timing = PassTiming(clock=clock)
    seen = []
    curious = module_pass(name="Curious")(lambda _, __: seen.append(timing.render()) or False)
    with PassContext(instruments=[timing]):
        curious(model)
    assert "Curious (running)" in seen[0]


def test_the_profile_survives_the_context_and_begins_anew_with_the_next(model):
    clock = Clock()
    timing = PassTiming(clock=clock)
    for name in ("A", "B"):
        with PassContext(instruments=[timing]):
            clock.pass_taking(name, 1.0)(model)
        assert [profile.name for profile in timing.profiles] == [name]


def test_timing_that_comes_while_a_pass_runs_times_what_begins_after_it(model):
    clock = Clock()
    timing = PassTiming(clock=clock)

    @module_pass(name="Outer")
    def outer(model, context):
        context.override_instruments([timing])
        return clock.pass_taking("Inner", 1.0)(model)

    with PassContext():
        outer(model)
    assert [profile.name for profile in timing.profiles] == ["Inner"]


def test_the_profile_is_written_when_the_context_is_left(model):
    texts = []
    timing = PassTiming(clock=Clock(), write=texts.append)
    with PassContext(instruments=[timing]):
        recording("p", [])(model)
        assert not texts
    assert texts == [timing.render()]
