"""Where every quantised tensor of a program comes from."""

from msgspec import Struct

from opu_fuse.bundle.program import Bundle, MachineSegment, StageTensor


class TensorSource(Struct, frozen=True, kw_only=True):
    """The producer of a quantised tensor.

    stage: its StageTensor when a post chain computes it, else None; group: -1 for inputs and host
    values.
    """

    name: str
    qdq_name: str
    group: int
    stage: StageTensor | None


def tensor_sources(bundle: Bundle) -> tuple[TensorSource, ...]:
    """Every quantised tensor of a program, each once, in the order in which they are computed."""
    results: dict[str, TensorSource] = {}
    for group in bundle.groups:
        for stage in group.stages:
            results[stage.name] = TensorSource(
                name=stage.name, qdq_name=stage.qdq_name, group=group.index, stage=stage
            )
    for t in bundle.tensors:
        known = results.get(t.name)
        if known is None or not known.qdq_name:
            results[t.name] = TensorSource(
                name=t.name,
                qdq_name=t.qdq_name,
                group=t.first_group,
                stage=known.stage if known else None,
            )

    computed_after: dict[str, float] = {}
    last = -1
    for segment in bundle.segments:
        if isinstance(segment, MachineSegment):
            last = max((last, *segment.groups))
            continue
        for name, qdq_name in segment.rounded:
            computed_after[name] = last + 0.5
            source = TensorSource(name=name, qdq_name=qdq_name, group=-1, stage=None)
            results.setdefault(name, source)

    def order(source: TensorSource) -> tuple[float, int]:
        stage = source.stage.stage if source.stage else 0
        return computed_after.get(source.name, source.group), stage

    return tuple(sorted(results.values(), key=order))
