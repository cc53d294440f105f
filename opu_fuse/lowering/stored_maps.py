"""Maps in memory: which a pass can read as they are stored, and how its stores permute pixels."""

from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.views import same_storage
from opu_fuse.errors import DoesNotFit
from opu_fuse.layout.permutation import (
    MOST_STEP,
    Permutation,
    permutation,
    rolled,
    with_strided_reads,
)

_MOST_STRIDED = 16
"""Instructions in which post reads the columns of a tile."""


def permuted(node: Node, cols: int, *, alone: bool, pixelwise: bool) -> Permutation:
    """Where the stores of a pass put the pixels of a map with so many columns.

    alone: nothing else is in the pass. pixelwise: post computes each pixel by itself, so that it
    may read columns with a stride. Raises DoesNotFit.
    """
    found = permutation(node.attrs["extents"], node.attrs["order"], cols)
    if found is not None and "before" in node.attrs:
        found = rolled(found, node.attrs["before"], node.attrs["after"], node.shape[3])
    if found is None:
        raise DoesNotFit(
            node.name,
            f"it views rows of {cols} pixels as axes that do not end with a row",
            "leave the operator on the host",
        )
    if pixelwise:
        found = with_strided_reads(found, _MOST_STRIDED)
    if not alone and found.step > MOST_STEP:
        raise DoesNotFit(
            node.name,
            f"neighbouring pixels would be stored {found.step} words from each other",
            "let it run by itself",
        )
    return found


def same_map(dfg: Dfg, node: Node, operand: int) -> None:
    """A map is read with the channels and pixels with which it was written: only dense looks
    through a flattening.
    """
    shape, stored = dfg[operand].shape, dfg[dfg.base(operand)].shape
    if not same_storage(shape, stored):
        raise DoesNotFit(
            node.name,
            f"it reads a map of shape {stored} as {shape}, the machine keeps maps in blocks of "
            "channels",
            "leave the operator on the host, or reshape after it",
        )
