"""DRAM placement of maps, and instructions before tokens are inserted."""

from typing import NamedTuple

from msgspec import Struct

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.isa.instruction import Instruction


class Placement(Struct, frozen=True, kw_only=True):
    """The address and layout of a tensor.

    offset: bytes from the start of the memory window;
    layout: its words and lanes;
    skips: bytes of its first and of its last channel block that belong to its neighbours.
    """

    offset: int
    layout: Layout
    skips: tuple[int, int]


class PostTile(NamedTuple):
    """The first element that a `post.run` computes."""

    pre_pool_row: int
    pre_pool_col: int
    row: int
    col: int
    block: int


class Step(Struct, frozen=True, kw_only=True):
    """An instruction of a group. tile: the first element that it computes, for post.run."""

    instruction: Instruction
    group: int
    tile: PostTile | None = None
