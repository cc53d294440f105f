"""The result of each stage of the compiler as text, for `--print-after`."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from opu_fuse.bundle.listing import program_listing
from opu_fuse.bundle.program import Bundle
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.text import dfg_lines
from opu_fuse.frontend.prepare import Prepared
from opu_fuse.fuse.explain.partition_text import explain
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.passes import model_text
from opu_fuse.schedule.plan_text import plan_lines, tiling_lines
from opu_fuse.schedule.tile_choice import Tiling


def _model(prepared: Prepared) -> Iterable[str]:
    return [model_text(prepared.canonical)]


def _partition(dfg: Dfg, hw: HwSpec, partition: Partition, tiling: Tiling) -> Iterable[str]:
    return chain(explain(dfg, hw, partition), tiling_lines(tiling, hw))


def _program(bundle: Bundle, hw: HwSpec) -> Iterable[str]:
    return [program_listing(bundle, hw)]


TEXTS: Mapping[str, Callable[..., Iterable[str]]] = {
    "model": _model,
    "dfg": dfg_lines,
    "partition": _partition,
    "plan": plan_lines,
    "program": _program,
}
"""Per stage (`pipeline.STAGES`), the text of its result."""
