"""The cycle engine on programs small enough to check by hand."""

from dataclasses import replace

import pytest

from opu_fuse.errors import ProgramError, RunError
from opu_fuse.hw import unit_rates
from opu_fuse.hw.isa.assembly import assemble
from opu_fuse.hw.isa.encoding import encode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.units.base import Stage
from tests.sim.cycle_programs import CONV, COPY, LATENCY, LOAD, POST, STORE, TINY, timeline

FIRST_WORD = 9 + LATENCY  # start, address measured and out, data back, word taken out, decoded
CHECK = 4  # hash_lo, hash_hi, their comparison, check
LOAD_WORDS = 4  # run, rows, blocks, C-type


def test_a_load_takes_its_address_the_latency_and_a_cycle_a_beat():
    found = timeline(LOAD)
    start = FIRST_WORD + CHECK + LOAD_WORDS
    assert found.spans["load"] == [(start, start + 5 + LATENCY + 16)]
    assert found.cycles == found.spans["load"][0][1] + 4


def test_half_the_bandwidth_doubles_the_beats_but_what_was_saved():
    full, half = timeline(LOAD), timeline(LOAD, bytes_per_cycle=4)
    assert half.lasts("load") == full.lasts("load") + 16 - 2


@pytest.mark.parametrize("latency", [2, 40, 100])
def test_the_latency_of_the_memory_is_paid_once_by_loads_that_follow_each_other(latency):
    found = timeline(f"{LOAD}\n{LOAD} dram=0x400\n{LOAD} dram=0x800", latency=latency)
    first, second, third = found.spans["load"]
    assert first[1] - first[0] == 5 + latency + 16
    assert (second[1] - first[1], third[1] - second[1]) == (16, 16)


def test_a_store_answers_after_its_last_beat_and_the_latency():
    assert timeline(STORE).lasts("store") == 7 + 16 + LATENCY


def test_gaps_of_a_store_are_beats():
    with_gaps = timeline(f"{STORE} word_gap=1")
    assert with_gaps.counters["work_store"] == 31
    assert with_gaps.lasts("store") == 7 + 31 + LATENCY


def test_conv_copy_and_post_take_what_the_formulas_say():
    chain = (Stage.REQUANT, Stage.ACT)
    found = timeline(f"{COPY} signal=post\n{POST} order=requant,compare wait=compute")
    assert found.lasts("compute") == unit_rates.copy_alone_cycles(TINY, pixels=16, blocks=1) == 34
    assert (
        found.lasts("post")
        == unit_rates.post_alone_cycles(TINY, iterations=16, blocks=1, stages=chain)
        == 48
    )
    rows = 9 * 2
    assert timeline(CONV).lasts("compute") == 4 + 17 * 16 + 16 + 14
    assert unit_rates.conv_alone_cycles(TINY, pixels=16, rows=rows) == 4 + 17 * 16 + 16 + 14


def test_a_machine_with_a_pre_chain_takes_ten_cycles_more():
    large = load_hw("opu-1024")
    text = CONV.replace("slot_log2=3", "slot_log2=6")
    pre = timeline(f"{text} pre=1", large).lasts("compute")
    assert pre == unit_rates.conv_alone_cycles(large, pixels=16, rows=18, pre=True)
    assert unit_rates.conv_alone_cycles(large, pixels=16, rows=1) == 16 + 16 + 17 + 10


def test_the_next_convolution_hides_its_first_fill_unless_it_accumulates_elsewhere():
    for second in (CONV, f"{CONV} accumulate=1"):
        after = timeline(f"{CONV}\n{second}").spans["compute"]
        assert after[1][1] - after[0][1] == 18 * 16, "one sweep behind the other"
    waits = timeline(f"{CONV}\n{CONV} accumulate=1 psum=1").spans["compute"]
    assert waits[1][1] - waits[0][1] == 18 * 16 + 13, "the array runs empty"


def test_post_instructions_fill_the_chain_again():
    found = timeline(f"{POST} order=compare\n{POST} order=compare").spans["post"]
    assert found[1][1] - found[0][1] == 16 + unit_rates.post_drain_cycles(TINY, (Stage.ACT,))


def test_an_instruction_waits_for_its_token_and_the_stall_names_who_gives_it():
    found = timeline(f"{LOAD} signal=compute\n{COPY} wait=load signal=post\n{POST} wait=compute")
    ((_, loaded),) = found.spans["load"]
    ((began, copied),) = found.spans["compute"]
    assert began == loaded + 1, "a token can be taken in the cycle after it was given"
    assert found.gaps["compute"][-1][1:] == (began, "load")
    assert found.gaps["post"][-1][1:] == (copied + 1, "compute")


def test_words_that_are_not_there_yet_are_a_reason_too():
    found = timeline(f"{LOAD}\n{COPY}")
    assert [reason for *_, reason in found.gaps["compute"]] == ["words"]


def test_a_full_counter_holds_the_retirement():
    one = replace(TINY, counter_bits=1)
    text = f"{LOAD} signal=compute\n" * 2 + f"{CONV}\n{COPY} wait=load\n{COPY} wait=load"
    held = timeline(text, one)
    assert held.spans["load"][1][1] == held.spans["compute"][1][0] + 1
    assert held.counters["stall_load"] > 0
    assert timeline(text).counters["stall_load"] == 0


def test_a_full_queue_holds_the_words_of_all_engines():
    """Post's words wait for room, the load behind them waits with them."""
    text = f"{LOAD} signal=compute\n{COPY} wait=load signal=post\n" + "".join(
        f"{POST} psum={i} wait=compute\n" if i == 0 else f"{POST} psum={i}\n" for i in range(9)
    )
    text += LOAD
    short = replace(TINY, queues=replace(TINY.queues, post=16))
    late, early = timeline(text, short), timeline(text)
    assert late.counters["stall_fetch"] > early.counters["stall_fetch"] == 0
    assert late.spans["load"][1][0] > early.spans["load"][1][0]


def test_only_so_many_bursts_are_open():
    """Rows apart: a burst each, of one beat; the fifth waits for the answer to the first."""
    rows = "load.feature run=1 rows=8 row_pitch=2 blocks=1"
    four, eight = (
        timeline(rows, replace(TINY, dram=replace(TINY.dram, outstanding=n))) for n in (4, 8)
    )
    assert eight.lasts("load") == 5 + LATENCY + 8
    assert four.lasts("load") == (5 + LATENCY + 1) + (1 + LATENCY + 4)


def test_loads_and_stores_share_the_bandwidth():
    load, store = LOAD.replace("run=16", "run=64"), STORE.replace("run=16", "run=64")
    both = timeline(f"{store}\n{load}")
    (stored,), (loaded,) = both.spans["store"], both.spans["load"]
    begin = loaded[0] + 3 + LATENCY  # both move from here to the end of the store, half as fast
    alone = begin - (stored[0] + 7)
    assert stored[1] - LATENCY == pytest.approx(begin + 2 * (64 - alone), abs=2)
    assert loaded[1] == pytest.approx(stored[0] + 7 + 128, abs=2), "no beat is lost"


def test_cycles_of_an_engine_are_open_idle_or_after_its_last_instruction():
    found = timeline(f"{LOAD} signal=compute\n{COPY} wait=load signal=post\n{POST} wait=compute")
    for engine, spans in found.spans.items():
        if spans:
            idle = sum(v for k, v in found.counters.items() if k.startswith(f"idle_{engine}_"))
            assert found.counters[f"busy_{engine}"] + idle == spans[-1][1]
            assert found.counters[f"work_{engine}"] <= found.counters[f"busy_{engine}"]


def test_a_program_without_an_end_is_refused():
    with pytest.raises(ProgramError, match="has no `end`"):
        steps_of(encode(assemble(LOAD)), TINY, TINY.dram.capacity)


def test_a_program_that_cannot_go_on_says_who_waits_for_whom():
    with pytest.raises(RunError, match="deadlock: compute waits for load at instruction 1"):
        timeline(f"{COPY} wait=load")
