"""Observers of the functional engine: stored tensors, intermediate tensors, and totals.

Stored tensors are read from the memory window when the last group that writes them has ended.
Intermediate tensors of the post chain are assembled from the tiles of its post instructions.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from opu_fuse.bundle.memory_image import by_image, read_tensor
from opu_fuse.bundle.program import Bundle, MachineSegment, StageTensor
from opu_fuse.bundle.result import GroupCounters
from opu_fuse.hw.dram_layout import lanes_of
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine, order_of, unit_params
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.compare.complete import Whole
from opu_fuse.sim.functional.machine import Executed
from opu_fuse.sim.functional.post import StageValues
from opu_fuse.units.base import Stage
from opu_fuse.units.residual import ResidualKind


class Capture:
    """Observer of one execution of one segment; `tensors` and `masks` are filled as groups end."""

    def __init__(
        self,
        bundle: Bundle,
        hw: HwSpec,
        segment: MachineSegment,
        program: Sequence[Instruction],
        window: np.ndarray,
        wholes: Sequence[Whole],
    ) -> None:
        """wholes: the stored tensors that this segment completes."""
        self._bundle, self._hw, self._segment, self._window = bundle, hw, segment, window
        self._wholes, self._images = wholes, bundle.batch
        posts = [i for i, x in enumerate(program) if x.engine is Engine.POST]
        self._tile = dict(zip(posts, segment.tiles, strict=True))
        self._left = Counter(segment.groups)
        self._masks: dict[str, np.ndarray] = {}
        self._inside: dict[str, np.ndarray] = {}
        self._whole: dict[str, np.ndarray] = {}

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """All images along the first axis."""
        inside = {name: by_image(result, self._images) for name, result in self._inside.items()}
        return {name: result[:, None] for name, result in inside.items()} | self._whole

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """Masks of the tensors that were computed only in part, for one image."""
        masks = {name: by_image(mask, self._images) for name, mask in self._masks.items()}
        every = {name: np.all(mask, axis=0, keepdims=True) for name, mask in masks.items()}
        return {name: mask for name, mask in every.items() if not mask.all()}

    def __call__(self, executed: Executed) -> None:
        index = self._segment.groups[executed.number]
        self._left[index] -= 1
        if index < 0:
            return
        group = self._bundle.groups[index]
        if executed.stages:
            values = self._values(executed)
            for stage in group.stages:
                if not stage.stored and stage.stage in values:
                    self._put_tile(stage, values[stage.stage], executed)
        if self._left[index] == 0:
            self._read_whole(index)

    def _values(self, executed: Executed) -> dict[int, StageValues]:
        """By number of the stage. A maximum after the last one is part of it: the tile above has
        computed some of the maxima of a tile's first row.
        """
        p, result = executed.instruction.post, {v.stage: v for v in executed.stages}
        last = chain_of(self._hw).unpack(order_of(p))[-1]
        joins = last.stage is Stage.RESIDUAL and unit_params(p, last.bank)["res_kind"]
        if joins == ResidualKind.MAXIMUM:
            number = len(result) - 1
            result[number - 1] = result.pop(number)
        return result

    def _read_whole(self, ended: int) -> None:
        """The tensors for which a group was the last to end."""
        for whole in self._wholes:
            if ended in whole.groups and not any(self._left[g] for g in whole.groups):
                array = read_tensor(self._window, whole.tensor, self._images)
                self._whole[whole.tensor.name] = array

    def _put_tile(self, stage: StageTensor, result: StageValues, executed: Executed) -> None:
        """Put one tile of a stage's results into its tensor."""
        ys, xs, block = positions(stage, result, self._tile[executed.number])
        values = result.values
        if stage.px > 1:
            xs = xs[:1] + np.arange(len(xs) * stage.px)
            values = values.reshape(*values.shape[:2], len(xs), values.shape[3] // stage.px)
        shape = (stage.channels, self._images * stage.rows, stage.cols)
        tensor = self._inside.setdefault(stage.name, np.zeros(shape, np.int8))
        mask = self._masks.setdefault(stage.name, np.zeros(shape, np.bool_))
        lanes = values.shape[0] * values.shape[3]
        made_lanes = values.transpose(0, 3, 1, 2).reshape(lanes, len(ys), len(xs))
        lanes = lanes_of(stage.pieces) - block * self._hw.word_channels
        channels = np.flatnonzero((lanes >= 0) & (lanes < len(made_lanes)))
        keep_y, keep_x = (ys >= 0) & (ys < shape[1]), (xs >= 0) & (xs < stage.cols)
        where = np.ix_(channels, ys[keep_y], xs[keep_x])
        tensor[where] = made_lanes[lanes[channels]][:, keep_y][:, :, keep_x]
        mask[where] = True


def positions(
    stage: StageTensor, result: StageValues, tile: tuple[int, int, int, int, int]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows and columns of a stage's tensor that a tile's results cover, and its first block."""
    tile_row, tile_col, out_row, out_col, block = tile
    if not stage.pooled:
        return result.ys + tile_row, result.xs + tile_col, block
    if result.pooled:
        return result.ys + out_row, result.xs + out_col, block
    return np.arange(len(result.ys)) + out_row, np.arange(len(result.xs)) + out_col, block


class Totals:
    """Observer that counts instructions and DRAM bytes, in all and per group."""

    def __init__(self, groups: Sequence[int]) -> None:
        self._groups = groups
        self._counts: Counter[tuple[int, str]] = Counter()
        self._engines: Counter[Engine] = Counter()

    def __call__(self, executed: Executed) -> None:
        index = self._groups[executed.number]
        self._engines[executed.instruction.engine] += 1
        self._counts[index, "instructions"] += 1
        self._counts[index, "read"] += executed.dram_read
        self._counts[index, "written"] += executed.dram_written

    def counters(self) -> dict[str, int]:
        """Instructions per engine; bytes that load read and store wrote."""
        totals = {f"instructions_{e.name.lower()}": self._engines[e] for e in Engine}
        for kind in ("read", "written"):
            moved = (n for (_, what), n in self._counts.items() if what == kind)
            totals[f"dram_bytes_{kind}"] = sum(moved)
        return totals

    def groups(self) -> tuple[GroupCounters, ...]:
        """Per group of the segment, by index; prologue and end are in no group."""
        return tuple(
            GroupCounters(
                index=index,
                instructions=self._counts[index, "instructions"],
                dram_bytes_read=self._counts[index, "read"],
                dram_bytes_written=self._counts[index, "written"],
            )
            for index in sorted({i for i, _ in self._counts if i >= 0})
        )
