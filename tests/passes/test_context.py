"""Contexts: which one is current, which passes it enables, what it may be configured with."""

import threading

import pytest

from opu_fuse.errors import InternalError, UserError
from opu_fuse.passes import PassContext, PassInfo, known_keys, register_config


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
    with pytest.raises(TypeError, match=f"{argument} is a list of pass names, got 'FoldConstant'"):
        PassContext(**{argument: "FoldConstant"})


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


@pytest.fixture
def tiling(own_registry):
    register_config("test.tile", 16, "rows of a tile")
    register_config("test.slack", 0.5, "share left free")
    register_config("test.fast", False, "do not look twice")
    register_config("test.label", "a", "shown in reports")


def test_a_key_has_its_default_until_given(tiling):
    assert PassContext().get_config("test.tile") == 16
    with PassContext(config={"test.tile": 8}):
        assert PassContext.current().get_config("test.tile") == 8
        assert PassContext.current().config == {"test.tile": 8}
    assert PassContext.current().get_config("test.tile") == 16


def test_whole_numbers_are_taken_where_fractions_are_meant(tiling):
    value = PassContext(config={"test.slack": 1}).get_config("test.slack")
    assert (value, type(value)) == (1.0, float)


TILE, LABEL = "its default is 16 (rows of a tile)", "its default is 'a' (shown in reports)"
FAST = "its default is False (do not look twice)"
MISTAKES = {
    "near": ("test.tiles", 8, "unknown key 'test.tiles'", "did you mean 'test.tile'?"),
    "a word for a number": ("test.tile", "8", "test.tile takes int, got '8' (str)", TILE),
    "a number for a word": ("test.label", 3, "test.label takes str, got 3 (int)", LABEL),
    "a truth value": ("test.tile", True, "test.tile takes int, got True (bool)", TILE),
    "a number for a truth value": ("test.fast", 1, "test.fast takes bool, got 1 (int)", FAST),
    "a fraction": ("test.tile", 8.0, "test.tile takes int, got 8.0 (float)", TILE),
    "nothing": ("test.tile", None, "test.tile takes int, got None (NoneType)", TILE),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_configuration_mistake_says_what_would_be_right(tiling, mistake):
    key, value, what, helps = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        PassContext(config={key: value})
    assert str(caught.value) == f"pass configuration: {what}; {helps}"


def test_a_key_like_no_other_gets_the_list(tiling):
    with pytest.raises(UserError) as caught:
        PassContext(config={"zzz": 1})
    for key in known_keys():
        assert key.name in caught.value.help


def test_a_key_is_registered_once(tiling):
    with pytest.raises(InternalError, match=r"key 'test\.tile' is registered twice"):
        register_config("test.tile", 4, "again")


def test_a_pass_that_asks_for_an_unknown_key_is_our_bug():
    with pytest.raises(InternalError, match=r"asks for 'test\.none'"):
        PassContext().get_config("test.none")
