"""What docs/registers.md and docs/bring-up.md promise is held at the ports of `opu_top`.

The table says where. A promise that changes its words, or a test that goes, fails here.
"""

import re

import pytest

from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, ErrorCode
from tests.rtl.bench import REPO, run_bench

pytestmark = pytest.mark.rtl

PROMISES = {
    "registers.md": {
        "Accesses to addresses that are not listed answer SLVERR": "top: control_registers_are",
        "to `PROG_*` and `WINDOW_*` while a program is queued": "promises: registers_of_window",
        "a program runs, which keeps its own": "top: the_window_cannot_be_moved",
        "The running program keeps its own window": "next_program: frames_overlap",
        "run the program, from a clean state; ignored while busy": "promises: commands_that_do_not",
        "stop with error code STOPPED once no bus transaction is open": "fault: stops_at_any_time",
        "is open; ignored while idle": "promises: commands_that_do_not",
        "clear every bit of IRQ_STATUS": "promises: interrupts_are_those",
        "as soon as the one that runs is done": "next_program: a_queued_program_runs",
        "at once while idle": "next_program: a_program_queued_while_none_runs",
        "an error or a stop drops it": "promises: a_stop_drops_the_queued_program",
        "an error or a stop": "next_program: an_error_drops_the_queued_program",
        "without waiting for open bus transactions": "abort: an_abort_recovers_from_a_silent",
        "before the next start; ignored while idle": "abort: an_abort_while_idle_is_ignored",
        "which bits of IRQ_STATUS raise the interrupt line": "promises: interrupts_are_those",
        "first error since start; valid from then on": "promises: a_watchdog_of_0_waits",
        "a multiple of 64; any other stops with WINDOW": "promises: places_that_are_none",
        "so 0; any other stops with WINDOW": "promises: places_that_are_none",
        "32-bit words of the program, at most 16777215": "top: a_program_longer_than_any_index",
        "a multiple of 4096; with any other the window is empty": "promises: places_that_are_none",
        "a window that ends above 2^40 is empty": "top: a_window_across_the_end",
        "one of more than 4 GiB is empty": "promises: places_that_are_none",
        "bit 32 of the bytes of the memory window": "promises: a_window_of_4_gib_is_one",
        "without a retirement after which the machine stops": "top: a_program_that_hangs",
        "0 switches it off": "promises: a_watchdog_of_0_waits",
        "when CYCLES_LO was read last": "top: halves_of_the_cycles",
        "in which the fetch engine executed an instruction": "top: programs_give_the_right_bytes",
        "data beats written to memory": "top: programs_give_the_right_bytes_without",
        "cycles in which the array multiplied": "top: waiting_for_memory_and_multiplying",
        "reads were open and no data came": "top: waiting_for_memory_and_multiplying",
        "since reset, with or without error": "promises: a_reset_of_one_cycle",
        "the next start begins from a clean state": "fault: words_that_are_no_instructions",
        "it starts two cycles after the end of the one before": "promises: a_queued_program_starts",
        "two ends before a look at it are one interrupt": "promises: a_queued_program_starts",
        "those of the program that was started last": "promises: a_queued_program_starts",
    },
    "bring-up.md": {
        "must be low for one at least": "promises: a_reset_of_one_cycle",
        "Accesses that come before wait": "top: what_comes_before_the_reset_is_over_waits",
        "Accesses may come at any time, also while a program runs": "promises: accesses_do_not",
        "INCR bursts inside 4 KB pages, read ids 0 (program) and 1": "promises: the_memory_port",
        "`ARCACHE` and `AWCACHE` are 0011": "promises: the_memory_port",
        "only a reset and `CTRL.abort` take it back": "abort: an_abort_recovers_from_a_silent",
        "high while a bit of `IRQ_STATUS` is set": "promises: interrupts_are_those",
        "Read `STATUS`: 0x1f00": "promises: a_reset_of_one_cycle",
        "stops by itself with SPEC_MISMATCH": "fault: programs_for_other_machines",
        "With any other one a program stops with WINDOW": "promises: places_that_are_none",
        "to any multiple of 64 bytes": "promises: a_program_may_begin_at_any_multiple",
        "The machine touches nothing outside": "fault: accesses_outside_of_window",
        "memory window may be written for the next one": "top: the_window_cannot_be_moved",
        "The program that runs keeps the window of its start": "next_program: frames_overlap",
        "cannot be written (SLVERR)": "promises: registers_of_window",
        "Both change only after the last write response": "promises: the_end_is_reported_after",
        "use a second window elsewhere in memory": "promises: memory_outside_the_window",
        "memory window and registers keep their values": "promises: registers_of_window",
        "The first error counts": "promises: a_watchdog_of_0_waits",
        "all idle bits are set and the bus is quiet": "top: every_error_has_its_code",
        "What the program has stored until then does not change": "promises: what_was_stored",
        "a reset by `rst_ni` is never needed for that": "fault: stops_at_any_time",
        "keeps `STATUS.busy` up": "abort: an_abort_recovers_from_a_silent",
        "The machine needs no reset, and its registers keep": "abort: an_abort_of_a_healthy_run",
        "The run ends within two cycles": "abort: an_abort_in_the_first_cycles",
        "Answers of the aborted run that come before the next start": "abort: late_answers",
    },
}
"""Page -> words of a promise -> bench, and the beginning of its test."""


def cases():
    return [(page, *row) for page, rows in PROMISES.items() for row in rows.items()]


@pytest.mark.parametrize(("page", "words", "where"), cases())
def test_every_promise_has_its_words_and_its_test(page, words, where):
    text = " ".join((REPO / "docs" / page).read_text(encoding="utf-8").split())
    assert words in text, f"{page} promises this no more"
    bench, test = where.split(": ")
    code = (REPO / "rtl_sim" / "benches" / f"{bench}_bench.py").read_text(encoding="utf-8")
    assert re.search(rf"^async def {test}\w*\(", code, re.MULTILINE), f"{bench} has no such test"


def test_every_register_and_every_error_is_looked_at_through_the_ports():
    benches = (REPO / "rtl_sim" / "benches").glob("*_bench.py")
    code = "".join(path.read_text(encoding="utf-8") for path in benches)
    code += (REPO / "rtl_sim" / "benches" / "fault_cases.py").read_text(encoding="utf-8")
    for register in CONTROL_REGISTERS:
        if not register.name.startswith(("BUSY_", "STALL_")):  # of every engine, by its name
            assert f'"{register.name.replace("CYCLES_HI", "CYCLES_{half}")}"' in code, register.name
    for code_ in ErrorCode:
        assert code_ is ErrorCode.NONE or f"ErrorCode.{code_.name}" in code, code_


def test_the_promises_that_no_other_bench_holds(tmp_path, seed):
    run_bench(
        tmp_path,
        top="opu_top",
        module="rtl_sim.benches.promises_bench",
        spec="opu-tiny",
        seed=seed,
        rounds=1,
    )
