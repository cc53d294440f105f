"""Predicted cycles of a machine segment: its tile schedule, timed."""

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.traversal import TileSchedule, Units, with_residents
from opu_fuse.timing.time_sink import TimeSink

MARGIN = 2
"""Units timed before and after those that differ, so that the banks hold what they will hold in the
program.
"""


def cycles(units: Units, hw: HwSpec) -> float:
    """Cycles of a machine segment, from the first load to the last store."""
    return _timed(with_residents(units, hw), hw).end


def cycles_by_output(units: Units, hw: HwSpec) -> dict[int, float]:
    """DFG index of an output -> cycles from the array's last tile before it to its own last tile.

    The last output counts to the end. units: with their resident maps.
    """
    return _timed(units, hw).spent


def cycles_and_memory(units: Units, hw: HwSpec) -> tuple[dict[int, float], float]:
    """`cycles_by_output` with new resident maps, and cycles in which memory moves bytes."""
    times = _timed(with_residents(units, hw), hw)
    return times.spent, times.memory.used


def _timed(units: Units, hw: HwSpec) -> TimeSink:
    times = TimeSink(hw)
    TileSchedule(hw, times).units(units)
    if units:
        times.spent[units[-1].layers[-1].output] += times.end - times.counted
    return times


def saved(old: Units, new: Units, hw: HwSpec) -> tuple[float, float]:
    """Return (cycles that `new` saves, cycles of the timed part of `old`).

    Only the units that differ, and `MARGIN` neighbours on either side, are timed.
    """
    most = min(len(old), len(new))
    front = next((i for i in range(most) if old[i] != new[i]), most)
    most -= front
    back = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    first, rest = max(front - MARGIN, 0), max(back - MARGIN, 0)
    before = cycles(old[first : len(old) - rest], hw)
    return before - cycles(new[first : len(new) - rest], hw), before
