"""The program as commented assembly text, as `program.asm` and `inspect --asm` show it."""

from collections.abc import Iterator

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, GroupInfo, HostSegment, MachineSegment
from opu_fuse.hw.isa.assembly import disassemble
from opu_fuse.hw.isa.encoding import decode_with_positions
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec


def program_listing(bundle: Bundle, hw: HwSpec) -> str:
    """All segments in order: machine segments as assembly, host segments as comments.

    `opu-fuse asm` assembles the text of one machine segment.
    """
    parts = [f"# {bundle.model} for {hw.name} ({bundle.spec_hash:011x})\n"]  # 44 bits
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, HostSegment):
            parts.append("".join(f"# {line}\n" for line in _host_segment(segment, number)))
        else:
            parts.append(_machine_segment(bundle, segment, number, hw))
    return "\n".join(parts)


def _host_segment(segment: HostSegment, number: int) -> Iterator[str]:
    """Lines of text: operators with the reason why they run on the host, the pieces in which they
    run, and pairs that are not fused.
    """
    yield f"segment {number}: host"
    yield from (f"  {op.name} ({op.op}): {op.reason}" for op in segment.ops)
    for piece in segment.pieces:
        names = ", ".join(f"{name} ({reason})" if reason else name for name, reason in piece.ops)
        yield f"  {piece.member}: {names or 'between int8 and floats'}"
    for producer, consumer, reason in segment.cuts:
        yield f"  {producer} not fused into {consumer}: {reason}"


def _machine_segment(bundle: Bundle, segment: MachineSegment, number: int, hw: HwSpec) -> str:
    """Assembly text, with a comment where a group or an output tile begins."""
    instructions, positions = decode_with_positions(segment_words(bundle, segment))
    comments: dict[int, str] = {}
    last = -1  # as in `segment.groups`: no group
    tiles = iter(segment.tiles)
    for index, (instruction, group) in enumerate(zip(instructions, segment.groups, strict=True)):
        lines: list[str] = []
        if group not in (last, -1):
            lines.append(group_title(bundle.groups[group]))
            last = group
        if instruction.engine is Engine.POST:
            _, _, row, col, block = next(tiles)
            lines.append(f"output tile at row {row}, column {col}, block {block}")
        if lines:
            comments[index] = "\n".join(lines)
    header = f"# segment {number}: machine, {segment.words} words at {segment.program_offset:#x}\n"
    return header + disassemble(instructions, comments, positions.tolist(), hw)


def group_title(group: GroupInfo) -> str:
    """Title with operators and their modules.

    Example: `group 3 layer1.0.conv1: conv1 (conv on ipa), relu1 (relu on compare)`
    """
    ops = ", ".join(f"{o.name} ({o.op}{f' on {o.module}' if o.module else ''})" for o in group.ops)
    return f"group {group.index} {group.name}: {ops}"
