"""What the command line says about passes."""

from typing import Any

import pytest

from opu_fuse.errors import UserError
from opu_fuse.passes import (
    EVERY,
    PassContext,
    PassInfo,
    PassOptions,
    Sequential,
    lookup,
    pass_context,
    register,
    registered,
)
from tests.passes.recorder import recording


@pytest.fixture
def pipeline(own_registry):
    """Passes a (level 0), b (1), c (2), d (3), all registered, and what they wrote."""
    log = []
    passes = [register(recording(name, log, opt_level=level)) for level, name in enumerate("abcd")]
    return Sequential(passes, name="pipeline"), log


SELECTED = [
    (PassOptions(), "abc"),
    (PassOptions(opt_level=0), "a"),
    (PassOptions(opt_level=1), "ab"),
    (PassOptions(opt_level=3), "abcd"),
    (PassOptions(opt_level=3, disable=("b", "c")), "ad"),
    (PassOptions(opt_level=0, require=("d",)), "ad"),
]


@pytest.mark.parametrize(("options", "ran"), SELECTED, ids=str)
def test_options_select_passes(pipeline, model, options, ran):
    passes, log = pipeline
    with pass_context(options, write=log.append):
        passes(model)
    assert log == list(ran)


def test_without_options_nothing_looks_on():
    context = pass_context(PassOptions(), write=[].append)
    assert (context.opt_level, context.instruments, dict(context.config)) == (2, (), {})


def test_ir_is_printed_as_it_comes_and_the_profile_last(pipeline, model):
    passes, log = pipeline
    options = PassOptions(print_before=("a",), print_after=("b", "c"), time_passes=True)
    with pass_context(options, write=log.append):
        passes(model)
    assert [text.splitlines()[0].split("  ")[0] for text in log] == [
        *("# IR before a", "a", "b", "# IR after b", "c", "# IR after c", "pass")
    ]
    assert [line.split()[0] for line in log[-1].splitlines()] == ["pass", "pipeline", *"abc"]


def test_all_ir_can_be_printed(pipeline, model):
    passes, log = pipeline
    with pass_context(PassOptions(print_after=(EVERY,)), write=log.append):
        passes(model)
    assert len([text for text in log if text.startswith("# IR after")]) == 4


def test_verifying_checks_the_word_and_the_ir(model):
    context = pass_context(PassOptions(verify=True), write=[].append)
    assert context.get_config("passes.check_word") is True
    assert [type(i).__name__ for i in context.instruments] == ["VerifyIR"]


OPTIONS = {
    "disable": "--disable-pass",
    "require": "require",
    "print_before": "--print-ir-before",
    "print_after": "--print-ir-after",
}


@pytest.mark.parametrize("field", OPTIONS)
def test_an_unknown_pass_gets_the_nearest_name(field):
    given: dict[str, Any] = {field: ("fold_constant",)}
    with pytest.raises(UserError) as caught:
        pass_context(PassOptions(**given), write=[].append)
    assert str(caught.value) == (
        f"{OPTIONS[field]} fold_constant: there is no pass 'fold_constant'; "
        "did you mean 'FoldConstant'?"
    )


def test_a_name_like_no_other_gets_all_names():
    with pytest.raises(UserError) as caught:
        pass_context(PassOptions(disable=("zzz",)), write=[].append)
    assert caught.value.help == f"known passes: {', '.join(i.name for i in registered())}"
    assert caught.value.exit_code == 1


def test_every_pass_cannot_be_disabled_at_once():
    with pytest.raises(UserError, match=r"there is no pass 'all'"):
        pass_context(PassOptions(disable=(EVERY,)), write=[].append)


def test_passes_of_a_pipeline_may_be_named_without_being_registered():
    options = PassOptions(disable=("Views",))
    with pytest.raises(UserError):
        pass_context(options, write=[].append)
    context = pass_context(options, write=[].append, more=[PassInfo(name="Views")])
    assert context.disabled_pass == {"Views"}


@pytest.mark.parametrize("level", [-1, 4])
def test_there_are_four_levels(level):
    with pytest.raises(UserError) as caught:
        pass_context(PassOptions(opt_level=level), write=[].append)
    assert str(caught.value) == (
        f"-O{level}: there is no such optimisation level; levels are -O0 to -O3"
    )


def test_configuration_mistakes_come_through():
    with pytest.raises(UserError, match=r"unknown key 'passes\.check'; did you mean"):
        pass_context(PassOptions(config={"passes.check": True}), write=[].append)


def test_a_context_is_only_made_not_entered():
    before = PassContext.current()
    pass_context(PassOptions(), write=[].append)
    assert PassContext.current() is before
    assert lookup("InferType").info.opt_level == 0
