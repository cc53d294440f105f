"""Contexts: which one is current, which passes it enables, what it may be configured with."""

import threading
from typing import Any

import pytest

from opu_fuse.errors import InternalError, UserError
from opu_fuse.passes import PassContext, PassInfo
from opu_fuse.passes.context import CONFIG


def test_the_innermost_context_is_the_current_one():
    default = PassContext.current()
    assert default.opt_level == 2
    with PassContext(opt_level=1) as outer:
        with PassContext(opt_level=3) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
    assert PassContext.current() is default


def test_a_context_may_be_entered_again_inside_itself():
    context = PassContext()
    with context, PassContext(opt_level=0), context:
        assert PassContext.current() is context
    assert PassContext.current() is not context


def test_a_context_is_left_when_its_body_raises():
    default = PassContext.current()
    with pytest.raises(KeyError), PassContext():
        raise KeyError
    assert PassContext.current() is default


def test_leaving_contexts_out_of_order_is_an_error():
    outer, inner = PassContext(), PassContext()
    outer.__enter__()
    with inner, pytest.raises(InternalError, match="not the innermost one"):
        outer.__exit__(None, None, None)
    outer.__exit__(None, None, None)


def test_each_thread_has_its_own_stack_and_its_own_default():
    seen = {}

    def other():
        seen["at start"] = PassContext.current()
        with PassContext(opt_level=0) as mine:
            seen["mine"] = PassContext.current() is mine
            ready.set()
            go_on.wait(timeout=10)

    ready, go_on = threading.Event(), threading.Event()
    default = PassContext.current()
    with PassContext(opt_level=3) as here:
        thread = threading.Thread(target=other)
        thread.start()
        assert ready.wait(timeout=10)
        assert PassContext.current() is here
        go_on.set()
        thread.join(timeout=10)
    assert seen["mine"]
    assert seen["at start"] not in {here, default}
    assert seen["at start"].opt_level == 2


# (level of the pass, level of the context, required, disabled) -> does it run?
SELECTION = [
    (0, 0, False, False, True),
    (1, 0, False, False, False),
    (2, 2, False, False, True),
    (3, 2, False, False, False),
    (3, 3, False, False, True),
    (3, 0, True, False, True),
    (0, 3, False, True, False),
    (3, 3, True, True, False),
]


@pytest.mark.parametrize(("level", "context_level", "required", "disabled", "runs"), SELECTION)
def test_disabled_beats_required_beats_level(level, context_level, required, disabled, runs):
    context = PassContext(
        opt_level=context_level,
        required_pass=["p"] if required else [],
        disabled_pass=["p"] if disabled else [],
    )
    assert context.enabled(PassInfo(name="p", opt_level=level)) is runs
    assert context.enabled(PassInfo(name="other", opt_level=level)) is (level <= context_level)


@pytest.mark.parametrize("argument", ["required_pass", "disabled_pass"])
def test_a_bare_string_is_not_taken_for_a_list_of_letters(argument):
    given: dict[str, Any] = {argument: "FoldConstant"}
    with pytest.raises(TypeError, match=f"{argument} is a list of pass names, got 'FoldConstant'"):
        PassContext(**given)


@pytest.mark.parametrize("level", [-1, True, "2", None])
def test_levels_are_whole_numbers(level):
    with pytest.raises(ValueError, match="opt_level"):
        PassContext(opt_level=level)
    with pytest.raises(ValueError, match="opt_level"):
        PassInfo(name="p", opt_level=level)


def test_a_pass_needs_a_name():
    with pytest.raises(ValueError, match="a pass needs a name, got ''"):
        PassInfo(name="")


# Configuration


CAP = "passes.fixed_point_cap"
CHECK = "passes.check_word"


def test_a_key_has_its_default_until_given():
    assert PassContext().get_config(CAP) == 8
    with PassContext(config={CAP: 3}):
        assert PassContext.current().get_config(CAP) == 3
        assert PassContext.current().config == {CAP: 3}
    assert PassContext.current().get_config(CAP) == 8


CAP_IS = f"its default is 8 ({CONFIG[CAP][1]})"
CHECK_IS = f"its default is False ({CONFIG[CHECK][1]})"
MISTAKES = {
    "near": ("passes.fixed_point", 8, "unknown key 'passes.fixed_point'", f"did you mean {CAP!r}?"),
    "like no other": ("zzz", 1, "unknown key 'zzz'", f"known keys: {CHECK}, {CAP}"),
    "a word for a number": (CAP, "8", f"{CAP} takes int, got '8' (str)", CAP_IS),
    "a truth value": (CAP, True, f"{CAP} takes int, got True (bool)", CAP_IS),
    "a number for a truth value": (CHECK, 1, f"{CHECK} takes bool, got 1 (int)", CHECK_IS),
    "a fraction": (CAP, 8.0, f"{CAP} takes int, got 8.0 (float)", CAP_IS),
    "nothing": (CAP, None, f"{CAP} takes int, got None (NoneType)", CAP_IS),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_configuration_mistake_says_what_would_be_right(mistake):
    key, value, what, helps = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        PassContext(config={key: value})
    assert str(caught.value) == f"pass configuration: {what}; {helps}"
