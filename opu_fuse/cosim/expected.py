"""Expected stores of a machine segment, from the functional engine, and differences from them."""

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from opu_fuse.bundle.memory_image import by_image
from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.sim.compare.writer import writer
from opu_fuse.sim.functional.machine import Executed, Machine
from opu_fuse.sim.functional.transfer import stored_bytes
from opu_fuse.sim.rtl.machine_run import Retired
from opu_fuse.sim.rtl.segment_runs import Decoded

Read = Callable[[int, int], np.ndarray]
"""Offset in the memory window and length -> current uint8 bytes."""


class _Store(Struct, frozen=True, kw_only=True):
    """offsets: of the bytes that a store writes, ascending; values: the bytes."""

    offsets: np.ndarray
    values: np.ndarray


class Expected(Struct, frozen=True, kw_only=True):
    """Expected stores of a segment.

    window: content after the segment. stores: by instruction number.
    """

    bundle: Bundle
    program: Decoded
    segment: MachineSegment
    window: np.ndarray
    stores: Mapping[int, _Store]

    def at_retirement(self, record: Retired, read: Read) -> RunError | None:
        """The first value of a store that has just retired which is not as it should be."""
        number = self.program.numbers[record.pc]
        store = self.stores[number]
        first = int(store.offsets[0])
        got = read(first, int(store.offsets[-1]) + 1 - first)[store.offsets - first]
        wrong = np.flatnonzero(got != store.values)
        if not wrong.size:
            return None
        at = wrong[0]
        where = f"stored in cycles {record.start} to {record.end} by instruction {number}"
        more = f"{wrong.size} of {got.size} bytes of that store differ"
        values = (int(got[at].view(np.int8)), int(store.values[at].view(np.int8)))
        group = self.segment.groups[number]
        return self._error(int(store.offsets[at]), group, *values, f"{where}; {more}")

    def at_end(self, window: np.ndarray) -> RunError | None:
        """The first byte of the window that is not as it should be."""
        wrong = np.flatnonzero(window != self.window)
        if not wrong.size:
            return None
        at = int(wrong[0])
        values = (int(window[at].view(np.int8)), int(self.window[at].view(np.int8)))
        last = [n for n, store in self.stores.items() if at in store.offsets]
        group = self.segment.groups[max(last)] if last else -1
        return self._error(at, group, *values, f"{wrong.size} bytes of the memory window differ")

    def _error(self, at: int, group: int, got: int, wanted: int, more: str) -> RunError:
        where = f"byte {at:#x} of the memory window"
        outputs = [] if group < 0 else self.bundle.groups[group].outputs
        for tensor in self.bundle.tensors:
            index = _element(tensor, at, self.bundle.batch) if tensor.name in outputs else None
            if index is not None:
                where = f"{tensor.name}{list(index)}, {self._instruction(tensor, index, group)}"
                break
        what = f"{where}, is {got}, the functional engine computes {wanted} ({more})"
        return RunError(self.bundle.model, what, "trace the waves back from that cycle")

    def _instruction(self, tensor: Tensor, index: tuple[int, ...], group: int) -> str:
        """Group and instruction that wrote an element, as text."""
        source = next(s for s in tensor_sources(self.bundle) if s.name == tensor.name)
        number = writer(self.bundle, source, (self.bundle.batch, *tensor.shape[1:]), index)
        instruction = self.program.instructions[number]
        name = f"{instruction.engine.name.lower()}.{instruction.opcode}"
        return f"group {group} ({self.bundle.groups[group].name}), instruction {number} ({name})"


def expect(
    bundle: Bundle, hw: HwSpec, program: Decoded, segment: MachineSegment, window: np.ndarray
) -> Expected:
    """Run a segment on the functional engine. window: uint8, as it is before (not changed)."""
    after = window.copy()
    stores: dict[int, _Store] = {}

    def observe(executed: Executed) -> None:
        if executed.instruction.engine is Engine.STORE:
            offsets = stored_bytes(executed.instruction, hw)
            stores[executed.number] = _Store(offsets=offsets, values=after[offsets])

    Machine(hw, after).run(program.instructions, observer=observe)
    return Expected(bundle=bundle, program=program, segment=segment, window=after, stores=stores)


def _element(tensor: Tensor, at: int, images: int) -> tuple[int, ...] | None:
    """Index, the image first, of the element stored at a byte of the memory window; None where
    none does.
    """
    marked = np.zeros(tensor.layout.size_bytes, np.uint8)
    if not 0 <= at - tensor.offset < marked.size:
        return None
    marked[at - tensor.offset] = 1
    stacked = by_image(tensor.layout.unpack(marked), images)
    result = np.argwhere(stacked.reshape(images, *tensor.shape[1:]))
    return tuple(int(i) for i in result[0]) if len(result) else None
