"""The DDR model against the rules of JESD79-3, and against integers by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse import zoo
from opu_fuse.errors import RunError, UserError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.ddr import MEMORIES, Ddr, DdrChannel, require_dram
from opu_fuse.sim.engine_names import MemoryName

X64, X16 = (MEMORIES[name] for name in MemoryName)

NANOSECONDS = {
    # JESD79-3F, DDR3-1600K and 4 Gbit: tRCD, tRP, tRAS, tRC, tWR, tRFC, tREFI.
    "rcd": 13.75,
    "rp": 13.75,
    "ras": 35,
    "rc": 48.75,
    "wr": 15,
    "rfc": 260,
    "refi": 7800,
    "wtr": 7.5,
    "rtp": 7.5,
}
CLOCK = 1.25
ROWS = {  # of 1 KB and of 2 KB a chip: tRRD, tFAW
    X64: (6, 30),
    X16: (7.5, 40),
}


def obeys_the_standard(commands, timing):
    """Every pair of commands that the standard keeps apart, in nanoseconds."""
    ns = NANOSECONDS
    rrd, faw = ROWS[timing]
    read, write = 11 * CLOCK, 8 * CLOCK  # CL, CWL
    burst = 4 * CLOCK
    opened, acts, columns, closed, refreshed = {}, [], [], {}, -1e9
    for at, name, bank, row in sorted(commands):
        now = at * CLOCK
        assert now >= refreshed + ns["rfc"] or name == "REF", "a command during a refresh"
        if name == "ACT":
            assert bank not in opened, "a row is open"
            assert now >= closed.get(bank, -1e9) + ns["rp"]
            assert not acts or now >= acts[-1] + rrd
            assert len(acts) < 4 or now >= acts[-4] + faw
            acts.append(now)
            opened[bank] = (row, now)
        elif name == "PRE":
            assert now >= opened.pop(bank)[1] + ns["ras"]
            for then, kind, where in columns:
                if where == bank:
                    after = ns["rtp"] if kind == "RD" else write + burst + ns["wr"]
                    assert now >= then + after
            closed[bank] = now
        elif name == "REF":
            assert not opened, "a row is open"
            assert all(now >= then + ns["rp"] for then in closed.values())
            refreshed = now
        else:
            assert opened[bank][0] == row, "another row is open"
            assert now >= opened[bank][1] + ns["rcd"]
            for then, kind, _ in columns:
                if kind == name:
                    assert now >= then + burst, "data would overlap"
                elif kind == "WR":
                    assert now >= then + write + burst + ns["wtr"]
                else:
                    assert now + write >= then + read + burst + 2 * CLOCK
            columns = [*columns[-8:], (now, name, bank)]


@pytest.mark.parametrize("timing", [X64, X16], ids=[*MemoryName])
@given(data=st.data())
def test_every_command_keeps_the_times_of_the_standard(timing, data):
    channel, at = DdrChannel(timing), 0
    channel.commands = []
    for _ in range(data.draw(st.integers(1, 40))):
        at += data.draw(st.one_of(st.integers(0, 60), st.integers(0, 20_000)))
        page = data.draw(st.integers(0, 40)) * 4096
        size = data.draw(st.sampled_from((8, 64, 256, 1024, 4096)))
        moved = channel.serve(at, page, size, write=data.draw(st.booleans()))
        assert len(moved) == max(size // timing.column_bytes, 1)
        assert moved == sorted(moved)
        assert moved[0] >= at + 8 + 4
    obeys_the_standard(channel.commands, timing)


def test_refreshes_come_as_often_as_they_must():
    channel = DdrChannel(X64)
    channel.commands = []
    channel.serve(0, 0, 64, write=False)
    channel.serve(10 * X64.refi + 5, 0, 64, write=False)
    at = [command.at for command in channel.commands if command.name == "REF"]
    assert at == [6240 * n for n in range(1, 11)]


def test_a_read_that_waits_for_nothing():
    """Activate, 11 clocks, read, 11 clocks, 4 of data; the row is open for the next."""
    channel = DdrChannel(X64)
    assert channel.serve(100, 0, 128, write=False) == [126, 130]
    assert channel.serve(200, 128, 64, write=False) == [215]


def test_another_row_of_the_bank_is_closed_first():
    """Row 1 of bank 0 is 8 rows further: from 100 on precharge, activate, read."""
    channel = DdrChannel(X64)
    channel.serve(0, 0, 64, write=False)
    assert channel.serve(100, 8 * 8192, 64, write=False) == [100 + 11 + 11 + 11 + 4]


def test_a_row_is_not_closed_before_it_was_open_for_its_time():
    channel = DdrChannel(X64)
    channel.serve(0, 0, 64, write=False)
    assert channel.serve(0, 8 * 8192, 64, write=False) == [28 + 11 + 11 + 11 + 4]


def test_the_data_bus_turns_around():
    """Write at 50, read 8 + 4 + 6 later; write 11 + 4 + 2 - 8 after the read."""
    channel = DdrChannel(X64)
    channel.serve(0, 0, 64, write=False)
    assert channel.serve(50, 64, 64, write=True) == [50 + 8 + 4]
    assert channel.serve(50, 128, 64, write=False) == [50 + 18 + 11 + 4]
    assert channel.serve(50, 192, 64, write=True) == [50 + 18 + 9 + 8 + 4]


@pytest.mark.parametrize("timing", [X64, X16], ids=[*MemoryName])
def test_a_stream_has_the_peak_less_refreshes(timing):
    """Rows of other banks open meanwhile: only a refresh stops the data, tRP + tRFC + tRCD and
    what the last column needs before."""
    channel, size = DdrChannel(timing), 4096
    ends = [channel.serve(0, n * size, size, write=False)[-1] for n in range(500)]
    columns = 500 * size // timing.column_bytes
    refreshes = (ends[-1] - 26) // timing.refi
    lost = ends[-1] - 22 - 4 * columns
    assert refreshes >= 2
    assert 0 < lost <= refreshes * (timing.rtp + timing.rp + timing.rfc + timing.rcd)


@pytest.mark.parametrize(("machine", "idle"), [("opu-1024", 7), ("opu-tiny", 4), ("opu-micro", 5)])
def test_latency_is_that_of_an_idle_read(machine, idle):
    """26 clocks of 1.25 ns, in cycles of 5, 10 and 6.67 ns; the rest is the controller's."""
    hw = load_hw(machine)
    for latency in (0, idle, 40):
        ddr = Ddr(MemoryName.DDR3_1600_X64, hw, latency)
        [due, *_] = ddr.read(0, 0, 4)
        assert due + 1 == max(latency, idle + 1)


def test_memories_that_cannot_be():
    program = compile_program(zoo.build("tiny_odd"), load_hw("opu-tiny"))
    with pytest.raises(UserError, match=r"ddr5.*use one of ddr3-1600x64, ddr3-1600x16"):
        program.run(engine="cycle", memory=MemoryOptions(dram="ddr5"))
    memory = MemoryOptions(dram="ddr3-1600x16", bytes_per_cycle=8)
    with pytest.raises(UserError, match=r"bytes_per_cycle.*has a bandwidth of its own"):
        program.run(engine="cycle", memory=memory)
    with pytest.raises(RunError, match="has 536870912 bytes, the memory window of the program"):
        require_dram("ddr3-1600x16", None, (1 << 29) + 1)
    require_dram("ddr3-1600x16", None, 1 << 29)
