"""Units that move values: reading and writing memory, padding."""

from opu_fuse.units.base import ModuleKind, Unit

LOAD = Unit(
    module="opu_load",
    doc="maps from memory; joining and splitting them is a matter of layout",
    runs={ModuleKind.MEM_RD: ("concat", "split")},
)
PAD = Unit(
    module="opu_compute",
    doc="rows and columns around a map, put there by what reads it",
    runs={ModuleKind.PAD: ("pad",)},
)
STORE = Unit(
    module="opu_store",
    doc="maps to memory, pixels repeated to upsample",
    runs={ModuleKind.UPSAMPLE: ("upsample",), ModuleKind.MEM_WR: ("upsample",)},
)
