"""What the front end must know of a machine: which operators it prepares a model for."""

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.model.grouped_softmax import of_groups
from opu_fuse.model.interpolation import INTERPOLATION
from opu_fuse.model.operator_sets import GROUPED_SOFTMAX, NORM_OPERATORS
from opu_fuse.model.rolls import ROLL
from opu_fuse.normalisation import QUARTERS


def norms_of(hw: HwSpec) -> frozenset[str]:
    """ONNX operators of `model/norms.py`, `model/interpolation.py` and `model/rolls.py` that a
    machine runs, and Concat: a prepared model suits all machines that have the same.
    """
    norms = frozenset(name for name, op in NORM_OPERATORS.items() if op in hw.dataflow.operators)
    windows = hw.array.depthwise and "transposed_conv" in hw.dataflow.operators
    moves = {INTERPOLATION} if windows else set()
    moves |= {ROLL} if "permute" in hw.dataflow.operators else set()
    if GROUPED_SOFTMAX in norms:
        moves |= {of_groups(hw.word_channels // QUARTERS)} if hw.halves_words else set()
    moves |= {"Concat"} if "concat" in hw.dataflow.operators else set()
    return norms | moves if norms else norms
