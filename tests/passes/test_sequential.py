"""Sequences: which passes run, what runs before them, and how a fixed point ends."""

import pytest

from opu_fuse.errors import InternalError
from opu_fuse.passes import (
    FixedPoint,
    PassContext,
    Sequential,
    lookup,
    module_pass,
    register,
    registered,
)
from tests.passes.recorder import Recorder, recording

LEVELS = {"zero": 0, "one": 1, "two": 2, "three": 3}


def passes(log, **options):
    return [recording(name, log, opt_level=level, **options) for name, level in LEVELS.items()]


# The context's arguments -> the passes that run, of one on each level.
SELECTED = [
    ({}, "zero one two"),
    ({"opt_level": 0}, "zero"),
    ({"opt_level": 1}, "zero one"),
    ({"opt_level": 3}, "zero one two three"),
    ({"opt_level": 0, "required_pass": ["three"]}, "zero three"),
    ({"opt_level": 3, "disabled_pass": ["zero", "two"]}, "one three"),
    ({"required_pass": ["three"], "disabled_pass": ["three"]}, "zero one two"),
    ({"disabled_pass": ["never heard of"]}, "zero one two"),
]


@pytest.mark.parametrize(("arguments", "ran"), SELECTED, ids=str)
def test_the_context_selects_the_passes(model, arguments, ran):
    log = []
    with PassContext(**arguments):
        Sequential(passes(log))(model)
    assert log == ran.split()


def test_without_a_context_the_default_level_is_two(model):
    log = []
    Sequential(passes(log))(model)
    assert log == ["zero", "one", "two"]


def test_a_pass_called_by_itself_runs_whatever_its_level(model):
    log = []
    with PassContext(opt_level=0, disabled_pass=["three"]):
        recording("three", log, opt_level=3)(model)
    assert log == ["three"]


def test_a_sequence_inside_a_sequence_is_selected_as_a_whole(model):
    log = []
    inner = Sequential(passes(log), name="inner", opt_level=1)
    with PassContext(opt_level=0):
        Sequential([inner, recording("last", log)])(model)
    assert log == ["last"]
    with PassContext(opt_level=3, disabled_pass=["inner"]):
        Sequential([inner])(model)
    assert log == ["last"]


def test_a_sequence_hands_the_model_on_and_says_whether_any_pass_changed_it(model):
    other = model.clone()
    seen = []

    @module_pass(in_place=False)
    def replace(model, _):
        seen.append(model)
        return other, True

    @module_pass
    def look(model, _):
        seen.append(model)
        return model, False

    result = Sequential([look, replace, look])(model)
    assert (result.model, result.modified) == (other, True)
    assert seen == [model, model, other]
    assert not Sequential([look])(model).modified
    assert not Sequential([])(model).modified


# Requirements


def test_required_passes_run_immediately_before_the_one_that_needs_them(own_registry, model):
    log = []
    for name, needs in (("d", []), ("b", ["d"]), ("c", [])):
        register(recording(name, log, required=needs))
    a = recording("a", log, required=["b", "c"])
    with PassContext(instruments=[]):
        Sequential([recording("first", log), a, recording("e", log, required=["c"])])(model)
    assert log == ["first", "d", "b", "c", "a", "c", "e"]


def test_a_requirement_runs_above_the_level_and_counts_as_a_change(own_registry, model):
    log = []
    register(recording("needed", log, opt_level=3, changed=True))
    with PassContext(opt_level=0):
        assert Sequential([recording("a", log, required=["needed"])])(model).modified
    assert log == ["needed", "a"]


def test_requirements_of_a_pass_that_is_left_out_do_not_run(own_registry, model):
    log = []
    register(recording("needed", log))
    with PassContext(disabled_pass=["a"]):
        Sequential([recording("a", log, required=["needed"])])(model)
    assert log == []


def test_a_disabled_requirement_runs_but_not_silently(own_registry, model, caplog):
    log = []
    register(recording("needed", log))
    with PassContext(disabled_pass=["needed"]):
        Sequential([recording("needed", log), recording("a", log, required=["needed"])])(model)
    assert log == ["needed", "a"]
    assert "pass needed is disabled, but a requires it: it runs" in caplog.text


def test_instruments_see_requirements_and_may_skip_them(own_registry, model):
    log = []
    register(recording("needed", log))
    with PassContext(instruments=[Recorder("i", log, refuse="needed")]):
        Sequential([recording("a", log, required=["needed"])], name="all")(model)
    assert [entry for entry in log if "should_run" in entry] == [
        *("i should_run all", "i should_run needed", "i should_run a")
    ]
    assert "a" in log
    assert "needed" not in log


def test_an_unknown_requirement_names_the_nearest_pass(own_registry, model):
    register(recording("FoldScale", []))
    message = "no pass 'fold_scale' is registered; did you mean 'FoldScale'"
    with pytest.raises(InternalError, match=message):
        Sequential([recording("a", [], required=["fold_scale"])])(model)


def test_requirements_in_a_circle_are_an_error_not_a_hang(own_registry, model):
    register(recording("b", [], required=["c"]))
    register(recording("c", [], required=["b"]))
    with pytest.raises(InternalError, match="a requires b requires c requires b: a circle"):
        Sequential([recording("a", [], required=["b"])])(model)


def test_a_name_is_registered_once(own_registry):
    register(recording("mine", []))
    with pytest.raises(InternalError, match="pass 'mine' is registered twice"):
        register(recording("mine", []))


def test_a_registered_class_is_made_anew_with_its_default_options(own_registry):
    @register
    @module_pass(opt_level=3)
    class Tiles:
        """Rows."""

        def __init__(self, rows=4):
            self.rows = rows

        def transform_module(self, model, _):
            return model, False

    assert vars(lookup("Tiles").options) == {"rows": 4}
    assert lookup("Tiles") is not lookup("Tiles")
    assert vars(Tiles(8).options) == {"rows": 8}
    assert Tiles.info in registered()


# Errors


def test_a_failing_pass_names_the_passes_that_ran_before_it(model):
    log = []
    bad = recording("bad", log, error=RuntimeError("no"))
    inner = Sequential([recording("p", log), recording("q", log), bad], name="inner")
    with pytest.raises(RuntimeError) as caught:
        Sequential([recording("o", log), inner], name="outer")(model)
    assert caught.value.__notes__ == [
        "in pass bad of inner; ran before it: p, q",
        "in pass inner of outer; ran before it: o",
    ]


# Fixed points


def shrinking(name, log, times):
    """Says that it changed the model the first `times` times."""

    @module_pass(name=name)
    def transform(model, _):
        log.append(name)
        return model, log.count(name) <= times

    return transform


@pytest.mark.parametrize(
    ("times", "runs"),
    [((0, 0), "ab"), ((1, 0), "aba"), ((0, 2), "ababab"), ((2, 1), "ababa"), ((1, 2), "ababab")],
    ids=str,
)
def test_a_fixed_point_ends_when_all_have_seen_the_last_change(model, times, runs):
    log = []
    result = FixedPoint([shrinking("a", log, times[0]), shrinking("b", log, times[1])])(model)
    assert "".join(log) == runs
    assert result.modified is any(times)


def test_the_cap_names_the_rule_that_still_fires(model):
    log = []
    point = FixedPoint(
        [shrinking("settles", log, 1), shrinking("restless", log, 99)], name="canonical", cap=3
    )
    with pytest.raises(InternalError) as caught:
        point(model)
    assert str(caught.value) == (
        "internal error in pass canonical: restless still changes the model after 3 rounds "
        "(please report this)"
    )
    assert log.count("restless") == 3


def test_a_fixed_point_reached_in_the_last_round_is_reached(model):
    assert FixedPoint([shrinking("a", [], 2)], cap=3)(model).modified
    with pytest.raises(InternalError, match="after 2 rounds"):
        FixedPoint([shrinking("a", [], 2)], cap=2)(model)


def test_the_cap_may_come_from_the_configuration(model):
    log = []
    with (
        PassContext(config={"passes.fixed_point_cap": 2}),
        pytest.raises(InternalError, match="after 2 rounds"),
    ):
        FixedPoint([shrinking("a", log, 99)])(model)


def test_disabling_the_restless_pass_lets_the_fixed_point_end(model):
    point = FixedPoint([shrinking("a", [], 1), shrinking("restless", [], 99)], cap=3)
    with PassContext(disabled_pass=["restless"]):
        assert point(model).modified


def test_a_cap_below_one_round_is_refused():
    with pytest.raises(ValueError, match="at least one round, got cap=0"):
        FixedPoint([], cap=0)
