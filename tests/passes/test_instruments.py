"""The order in which instruments are called, and what an error in each place leaves behind.

The tables are the worked semantics of TVM's pass instruments.
"""

import pytest

from opu_fuse.errors import InternalError
from opu_fuse.passes import PassContext, Sequential
from tests.passes.recorder import Recorder, recording


def run_under(log, model, *instruments, passes=("p",), pass_error=None, **context):
    """Run passes under instruments; the exception that came out, or None."""
    try:
        with PassContext(instruments=instruments, **context):
            for name in passes:
                recording(name, log, error=pass_error)(model)
    except RuntimeError as error:
        return error
    return None


ORDER = """
a enter
b enter
a should_run p
b should_run p
a before p
b before p
p
a after p
b after p
a should_run q
b should_run q
a before q
b before q
q
a after q
b after q
a exit
b exit
"""


def test_hooks_are_called_in_the_order_given(model):
    log = []
    assert run_under(log, model, Recorder("a", log), Recorder("b", log), passes="pq") is None
    assert log == ORDER.split("\n")[1:-1]


# broken (instrument, hook), or the pass -> what is called, up to the end of the context.
ERRORS = {
    ("a", "should_run"): "a enter, b enter, a should_run p, a exit, b exit",
    ("b", "should_run"): "a enter, b enter, a should_run p, b should_run p, a exit, b exit",
    ("a", "before"): (
        "a enter, b enter, a should_run p, b should_run p, a before p, a exit, b exit"
    ),
    ("b", "before"): (
        "a enter, b enter, a should_run p, b should_run p, a before p, b before p, a exit, b exit"
    ),
    ("pass", ""): (
        "a enter, b enter, a should_run p, b should_run p, a before p, b before p, p, "
        "a exit, b exit"
    ),
    ("a", "after"): (
        "a enter, b enter, a should_run p, b should_run p, a before p, b before p, p, a after p, "
        "a exit, b exit"
    ),
    ("b", "after"): (
        "a enter, b enter, a should_run p, b should_run p, a before p, b before p, p, a after p, "
        "b after p, a exit, b exit"
    ),
}


@pytest.mark.parametrize("place", ERRORS, ids=" ".join)
def test_an_error_around_a_pass_propagates_and_every_instrument_is_left(model, place):
    who, hook = place
    log = []
    a, b = (Recorder(name, log, broken=hook if name == who else "") for name in "ab")
    error = run_under(
        log, model, a, b, pass_error=RuntimeError("the pass") if who == "pass" else None
    )
    assert str(error) == ("the pass" if who == "pass" else f"{who} {hook}")
    assert ", ".join(log) == ERRORS[place]


# broken instrument of (a, b, c), hook -> calls of the context alone.
CONTEXT_ERRORS = {
    ("a", "enter"): "a enter",
    ("b", "enter"): "a enter, b enter, a exit",
    ("c", "enter"): "a enter, b enter, c enter, b exit, a exit",
    ("a", "exit"): "a enter, b enter, c enter, a exit",
    ("b", "exit"): "a enter, b enter, c enter, a exit, b exit",
    ("c", "exit"): "a enter, b enter, c enter, a exit, b exit, c exit",
}


@pytest.mark.parametrize("place", CONTEXT_ERRORS, ids=" ".join)
def test_an_error_on_entering_or_leaving_clears_the_list_and_propagates(place):
    who, hook = place
    log = []
    instruments = [Recorder(n, log, broken=hook if n == who else "") for n in "abc"]
    context, outside = PassContext(instruments=instruments), PassContext.current()
    with pytest.raises(RuntimeError, match=f"^{who} {hook}$"), context:
        log.append("body") if hook == "enter" else None
    assert ", ".join(log) == CONTEXT_ERRORS[place]
    assert context.instruments == ()
    assert PassContext.current() is outside


def test_an_error_while_unwinding_an_entry_does_not_stop_it_nor_hide_the_first(caplog):
    log = []
    a, b = Recorder("a", log), Recorder("b", log, broken="exit")
    c = Recorder("c", log, broken="enter")
    with pytest.raises(RuntimeError, match=r"^c enter$"), PassContext(instruments=[a, b, c]):
        pass
    assert log == ["a enter", "b enter", "c enter", "b exit", "a exit"]
    assert "Recorder.exit_pass_ctx failed" in caplog.text


def test_an_error_on_leaving_shows_the_error_of_the_body_behind_it():
    a = Recorder("a", [], broken="exit")
    with pytest.raises(RuntimeError, match=r"^a exit$") as caught, PassContext(instruments=[a]):
        raise KeyError("body")
    assert isinstance(caught.value.__context__, KeyError)


def test_one_no_skips_the_pass_but_all_are_asked(model):
    log = []
    a, b = Recorder("a", log, refuse="p"), Recorder("b", log)
    with PassContext(instruments=[a, b]):
        result = recording("p", log, changed=True)(model)
    assert log == ["a enter", "b enter", "a should_run p", "b should_run p", "a exit", "b exit"]
    assert (result.model, result.modified) == (model, False)


def test_a_required_pass_is_not_asked_about(model):
    log = []
    a = Recorder("a", log, refuse="p")
    assert run_under(log, model, a, required_pass=["p"]) is None
    assert log == ["a enter", "a before p", "p", "a after p", "a exit"]


def test_a_sequence_is_itself_a_pass_to_instruments(model):
    log = []
    with PassContext(instruments=[Recorder("a", log)]):
        Sequential([recording("p", log), recording("q", log)], name="all")(model)
    assert log == [
        *("a enter", "a should_run all", "a before all"),
        *("a should_run p", "a before p", "p", "a after p"),
        *("a should_run q", "a before q", "q", "a after q"),
        *("a after all", "a exit"),
    ]


def test_every_hook_is_optional(model):
    class OnlyAfter:
        seen = ()

        def run_after_pass(self, _, info):
            self.seen += (info.name,)

    instrument, log = OnlyAfter(), []
    assert run_under(log, model, object(), instrument) is None
    assert (log, instrument.seen) == (["p"], ("p",))


def test_should_run_without_a_return_is_no_silent_no(model):
    class Forgetful:
        def should_run(self, _, info):
            info.name.upper()

    with pytest.raises(InternalError, match=r"Forgetful\.should_run returned None, not a bool"):
        run_under([], model, Forgetful())


def test_run_on_error_is_told_of_every_failure_around_a_pass(model):
    told = []

    class Watcher:
        def run_on_error(self, _, info, error):
            told.append((info.name, str(error)))
            raise KeyError("logged only")

    log = []
    error = run_under(log, model, Watcher(), Recorder("b", log, broken="after"))
    assert str(error) == "b after"
    assert told == [("p", "b after")]


# override_instruments


def test_override_leaves_the_old_ones_then_enters_the_new(model):
    log = []
    old, new = [Recorder("a", log), Recorder("b", log)], [Recorder("c", log)]
    with PassContext(instruments=old) as context:
        context.override_instruments(new)
        recording("p", log)(model)
    assert log == [
        *("a enter", "b enter", "a exit", "b exit", "c enter"),
        *("c should_run p", "c before p", "p", "c after p", "c exit"),
    ]


def test_override_with_none_turns_instruments_off(model):
    log = []
    with PassContext(instruments=[Recorder("a", log)]) as context:
        context.override_instruments(None)
        recording("p", log)(model)
    assert log == ["a enter", "a exit", "p"]


def test_override_works_on_the_default_context(model):
    log, default = [], PassContext.current()
    default.override_instruments([Recorder("a", log)])
    recording("p", log)(model)
    default.override_instruments(None)
    recording("q", log)(model)
    assert log == ["a enter", "a should_run p", "a before p", "p", "a after p", "a exit", "q"]


@pytest.mark.parametrize(
    ("old", "new", "calls"),
    [("exit", "", "a enter, a exit"), ("", "enter", "a enter, a exit, b enter")],
    ids=["old one fails to leave", "new one fails to enter"],
)
def test_an_error_in_override_leaves_the_context_without_instruments(old, new, calls):
    log = []
    with PassContext(instruments=[Recorder("a", log, broken=old)]) as context:
        with pytest.raises(RuntimeError):
            context.override_instruments([Recorder("b", log, broken=new)])
        assert context.instruments == ()
    assert ", ".join(log) == calls


def test_override_before_entering_only_changes_the_list():
    log = []
    context = PassContext(instruments=[Recorder("a", log)])
    context.override_instruments([Recorder("b", log)])
    with context:
        pass
    assert log == ["b enter", "b exit"]
