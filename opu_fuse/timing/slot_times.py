"""When the time slots of a fused stack may read rows, and overwrite them."""

from opu_fuse.tile_schedule.fused_stack import FusedStack
from opu_fuse.tile_schedule.slot_lines import LOAD, TimeSlot


class SlotTimes:
    """Cycles at which slots were complete.

    needed, reusable: cycles at which the present slot may read, and overwrite.
    """

    def __init__(self) -> None:
        # Per layer, after a leading zero: cycles at which its slots left the array, and at which
        # their output was complete.
        self._computed: list[list[float]] = []
        self._finished: list[list[float]] = []
        self._slot: TimeSlot | None = None
        self.needed = self.reusable = 0.0

    def start(self, stack: FusedStack) -> None:
        """Forget the slots of the stack before."""
        self._computed = [[0.0] for _ in stack.layers]
        self._finished = [[0.0] for _ in range(len(stack.layers) + 1)]

    def proceed(self, slot: TimeSlot | None, loaded: float, computed: float, done: float) -> None:
        """Record the end of the present slot, and go on to another.

        loaded, computed, done: cycles at which load, the array and post completed it.
        """
        if self._slot is not None:
            load, layer = self._slot.layer == LOAD, self._slot.layer
            self._finished[layer + 1].append(loaded if load else done)
            if not load:
                self._computed[layer].append(computed)
        self._slot, self.needed, self.reusable = slot, 0.0, 0.0
        if slot is not None:
            for layer, count in slot.needs:
                self.needed = max(self.needed, self._finished[layer + 1][count])
            for layer, count in slot.frees:
                self.reusable = max(self.reusable, self._computed[layer][count])
