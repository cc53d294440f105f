"""Which rows of a constant operand are equal, such as the biases of an attention's windows."""

from collections.abc import Sequence

import numpy as np

from opu_fuse.dfg.graph import Node
from opu_fuse.dfg.views import feature_shape
from opu_fuse.layout.shape import Shape


def alike_rows(operands: Sequence[Node], shape: Shape) -> tuple[int, ...]:
    """For each row of a layer's second operand the number of the first row that equals it; empty
    where none are alike, or the operand is not one constant.
    """
    rows, moved = shape.images * shape.out_rows, shape.pool or shape.upsample != (1, 1)
    if shape.images == 1 or moved or len(operands) != 1 or operands[0].const is None:
        return ()
    values, (channels, count, cols) = operands[0].const, feature_shape(operands[0].shape)
    if values.size != channels * count * cols or rows % count:
        return ()
    by_row = np.moveaxis(values.reshape(channels, count, cols), 1, 0)
    first: dict[bytes, int] = {}
    alike = [first.setdefault(row.tobytes(), number) for number, row in enumerate(by_row)]
    alike *= rows // count
    return tuple(alike) if len(first) < rows else ()
