from opu_fuse.frontend.absorb import absorb
from opu_fuse.frontend.calibration import Calibration
from opu_fuse.frontend.load import ModelLike, load_model
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.frontend.quantise import quantise
from opu_fuse.frontend.reference import Reference, reference

__all__ = [
    "Calibration",
    "ModelLike",
    "Prepared",
    "Reference",
    "absorb",
    "load_model",
    "prepare",
    "quantise",
    "reference",
]
