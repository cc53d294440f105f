"""Where a program has its maps, and its instructions before they have tokens."""

from typing import NamedTuple

from msgspec import Struct

from opu_fuse.hw.dram_layout import Layout
from opu_fuse.hw.isa.instruction import Instruction


class Placement(Struct, frozen=True, kw_only=True):
    """A tensor's place in the memory window. skips: bytes of its first and of its last channel
    block that belong to its neighbours.
    """

    offset: int
    layout: Layout
    skips: tuple[int, int]


class PostTile(NamedTuple):
    """The first element of what a `post.run` makes."""

    pre_pool_row: int
    pre_pool_col: int
    row: int
    col: int
    block: int


class Step(Struct, frozen=True, kw_only=True):
    """An instruction of a group. tile: of post.run."""

    instruction: Instruction
    group: int
    tile: PostTile | None = None
