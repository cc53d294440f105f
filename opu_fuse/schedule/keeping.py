"""Maps that stay on chip: post writes a layer's output into a feature bank, where the layer emitted
next reads it.

Such a map lies row by row, every row with all its channel blocks.
"""

from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.job import Banks, Job
from opu_fuse.schedule.reading import Part, parts


def can_keep(job: Job, reader: Job, banks: Banks, hw: HwSpec, unfold: int) -> bool:
    """Whether a layer's output, as its reader wants it, fits into a feature bank beside all that
    the layer reads.
    """
    shape, layout = job.layer.shape, job.output.layout
    plain = job.output.skips == (0, 0) and shape.upsample == job.layer.phase.apart == (1, 1)
    return (
        hw.post.keep
        and banks.banks > 1
        and reader.layer.source == job.layer.output
        and plain
        and layout.words <= banks.bank_words
        and (
            job.source.layout.words <= banks.bank_words
            or input_banks(job, banks, unfold) < banks.banks
        )
    )


def input_banks(job: Job, banks: Banks, unfold: int) -> int:
    """Banks that a layer's input takes when each of its parts is loaded into one, counted up to all
    there are.
    """
    if banks.find(job.layer.source) is not None:
        return 1
    needed: set[Part] = set()
    for part in parts(job, unfold):
        needed.add(part)
        if len(needed) == banks.banks:
            break
    return len(needed)


def keeping(job: Job, at: int | None, block: int, row: int, word: int) -> dict[str, int]:
    """Post registers of an output that begins at a channel block, row and word of a row. at:
    feature buffer word from which the whole map is kept; None where it is not.
    """
    if at is None:
        return {"keep": 0}
    layout = job.output.layout
    return {
        "keep": 1,
        "keep_at": at + (row * layout.blocks + block) * layout.row_words + word,
        "keep_row_pitch": layout.blocks * layout.row_words,
        "keep_block_pitch": layout.row_words,
    }
