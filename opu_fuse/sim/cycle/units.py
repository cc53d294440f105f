"""Compute and post as units that take one instruction after the other: nobody shares them, so
their times follow from their starts alone. The recurrences of `opu_compute_rows` and
`opu_post_walk`.
"""

from opu_fuse.hw import unit_rates
from opu_fuse.hw.depthwise_window import ring_columns, window_timing
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.cycle.instruction_costs import Chain, InstructionCost, Sweeps, Windows


class ComputeUnit:
    """Data fetch and array. worked: steps of the array so far."""

    def __init__(self, hw: HwSpec) -> None:
        self._drain = unit_rates.drain_cycles(hw)
        self._row_words = hw.row_words
        self._columns = ring_columns(hw.array.window_side)
        self._part_cycles = hw.array.window_cycles
        self.worked = 0
        self._ready = 0
        self._stepped = -1  # last step issued
        self._pixels_free = 0  # conv and copy may sweep
        self._next_row = 0  # conv may, by the partial sums of its sweep before
        self._window_free = 0  # depthwise may read its columns

    def ready(self, work: InstructionCost) -> int:  # noqa: ARG002  one signature for all units
        """Cycle from which the next instruction may start."""
        return self._ready

    def run(self, number: int, work: InstructionCost, start: int) -> int:  # noqa: ARG002  one signature for all units
        """Take an instruction at cycle `start`; the cycle in which it is done."""
        if isinstance(work, Windows):
            self._windows(work, start)
        else:
            assert isinstance(work, Sweeps)
            self._sweeps(work, start)
        return self._stepped + self._drain

    def _drained(self) -> int:
        return self._stepped + self._drain - 1

    def _sweeps(self, work: Sweeps, start: int) -> None:
        first = max(start + work.setup, self._pixels_free)
        if work.gap:
            first = max(first, self._next_row)
        if work.accumulate:
            first = max(first, self._drained())
        last = first + (work.count - 1) * work.period + work.waits
        self._stepped = last + work.steps
        self._pixels_free = last + work.steps
        self._next_row = last + work.gap
        self._window_free = self._stepped + 1
        self._ready = last + 1
        self.worked += work.count * work.steps

    def _windows(self, work: Windows, start: int) -> None:
        setup = max(work.parts[0] * self._row_words, unit_rates.SWEEP_SETUP_CYCLES)
        first = max(start + setup, self._window_free)
        if work.accumulate:
            first = max(first, self._drained())
        timing = window_timing(
            out_rows=work.out_rows,
            out_cols=work.out_cols,
            kernel=work.kernel,
            stride_x=work.stride_x,
            dilation_x=work.dilation_x,
            parts=work.parts,
            row_words=self._row_words,
            columns=self._columns,
            part_cycles=self._part_cycles,
            busy=max(self._stepped - first, 0),
        )
        self._stepped = first + timing.stepped
        self._pixels_free = self._stepped + 1
        self._window_free = first + timing.read + 1
        self._ready = first + timing.begun + 1
        self.worked += self._part_cycles * sum(work.parts) * work.out_rows * work.out_cols


class PostUnit:
    """Post chain. worked: cycles spent on iterations so far."""

    def __init__(self) -> None:
        self.worked = 0
        self._ready = 0
        self._empty = 0  # the chain may be launched
        self._held = 0  # parameters may come

    def ready(self, work: InstructionCost) -> int:  # noqa: ARG002  one signature for all units
        """Cycle from which the next instruction may start."""
        return self._ready

    def run(self, number: int, work: InstructionCost, start: int) -> int:  # noqa: ARG002  one signature for all units
        """Take an instruction at cycle `start`; the cycle in which it is done."""
        assert isinstance(work, Chain)
        first = max(start + unit_rates.POST_SETUP_CYCLES, self._empty + 1)
        if work.words:
            loaded = max(start + unit_rates.POST_LOAD_CYCLES, self._held + 1) + work.words
            first = max(first, loaded)
        last = first + (work.blocks - 1) * work.period + work.iterations - 1
        self._held = first + (work.blocks - 1) * work.period + work.hold
        self._ready = last + 1
        self._empty = last + work.drain
        self.worked += work.blocks * work.iterations
        return self._empty
