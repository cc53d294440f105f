"""Parameters of instructions, by engine: what it latches when it starts.

Registers of units are those of the first one; values are integers of the register's width.

Generated from the ISA table by `python -m opu_fuse.hw.rtlgen.generate`; do not edit.
"""

from typing import TypedDict


class FetchParams(TypedDict):
    """Parameters of the fetch engine's instructions."""

    hash_lo: int
    """bits 21:0 of the spec hash the program was compiled for"""
    hash_hi: int
    """bits 43:22 of the spec hash"""


class LoadParams(TypedDict):
    """Parameters of the load engine's instructions."""

    dram_lo: int
    """byte offset in the memory window, bits 21:0"""
    dram_hi: int
    """byte offset in the memory window, bits 31:22"""
    dst: int
    """first word written in the destination buffer, the others follow it"""
    run: int
    """words per contiguous run, >= 1"""
    rows: int
    """runs per block, >= 1"""
    row_pitch: int
    """DRAM words from run to run; unfold: image words from output row to row"""
    blocks: int
    """blocks, >= 1"""
    block_pitch: int
    """DRAM words from block to block"""
    image: int
    """unfold: image word of output row 0, kernel row 0 (inside or not)"""
    in_rows: int
    """unfold: rows of the image; rows outside read as pad_value"""
    origin_y: int
    """unfold: image row of output row 0, kernel row 0"""
    stride_y: int
    """unfold: image rows between output rows, >= 1"""
    kernel_rows: int
    """unfold: image rows of a column"""
    pad_value: int
    """unfold: int8 of rows outside the image"""
    zero_low: int
    """weight: bytes at the low end of every word that are loaded as 0"""
    zero_high: int
    """weight: bytes at the high end of every word that are loaded as 0"""


class PreRegisters(TypedDict):
    """Registers of one PRE unit."""

    pre_zero: int
    """zero point after the unit"""
    pre_lo: int
    """lower clamp of the unit"""
    pre_hi: int
    """upper clamp of the unit"""


class ComputeParams(PreRegisters):
    """Parameters of the compute engine's instructions."""

    feature: int
    """feature buffer word of tile pixel (0, 0), block 0"""
    row_pitch: int
    """feature words from tile row to tile row"""
    block_pitch: int
    """feature words from channel block to channel block"""
    in_rows: int
    """rows of the tile; rows outside 0..in_rows-1 read as pad_value"""
    in_cols: int
    """pixels per row of the tile; columns outside read as pad_value"""
    origin_y: int
    """tile row read for output row 0 and kernel row 0"""
    origin_x: int
    """tile column read for output column 0 and kernel column 0"""
    stride_y: int
    """tile rows between output rows, >= 1"""
    stride_x: int
    """tile columns between output columns, >= 1"""
    dilation_y: int
    """tile rows between kernel rows, >= 1"""
    dilation_x: int
    """tile columns between kernel columns, >= 1"""
    out_rows: int
    """output rows of the tile"""
    out_cols: int
    """output columns of the tile"""
    kernel_rows: int
    """kernel rows"""
    kernel_cols: int
    """kernel columns"""
    ic_steps: int
    """input channel segments (of the mode's ic channels; copy: blocks)"""
    oc_steps: int
    """output channel groups; depthwise: output rows at once"""
    mode: int
    """index into the spec's array modes"""
    weight: int
    """weight buffer word of the first weight row"""
    psum: int
    """partial sum word of output pixel (0, 0), block 0"""
    psum_block_pitch: int
    """partial sum words from output block to output block"""
    accumulate: int
    """1: add to the partial sums; 0: a lane's first iteration overwrites"""
    pad_value: int
    """int8 read outside the tile"""
    slot_log2: int
    """log2 of the bytes a pixel takes in a feature word"""
    ic_first: int
    """first input segment"""
    oc_first: int
    """first output channel group"""
    pre: int
    """units of the pre chain that features pass"""
    pre_param: int
    """pre chain parameter word of block 0 (8 words a block and unit; gates: one)"""
    gate: int
    """1: the unit multiplies by a gate, one parameter word a block"""
    gate_x_zero: int
    """zero point of the features"""
    gate_zero: int
    """zero point of the gate"""
    gate_mult: int
    """multiplier of the product"""
    gate_shift: int
    """right shift of the product, at most 47"""


class ActRegisters(TypedDict):
    """Registers of one ACT unit."""

    act_pos: int
    """slope multiplier at and above the zero point"""
    act_neg: int
    """slope multiplier below the zero point"""
    act_shift: int
    """right shift after the slope"""
    act_x_zero: int
    """zero point before"""
    act_y_zero: int
    """zero point after"""
    act_lo: int
    """lower clamp"""
    act_hi: int
    """upper clamp"""


class PoolRegisters(TypedDict):
    """Registers of one POOL unit."""

    pool_kind: int
    """0 max, 1 average"""
    pool_mult: int
    """average: multiplier"""
    pool_shift: int
    """average: right shift"""
    pool_x_zero: int
    """average: zero point before"""
    pool_y_zero: int
    """average: zero point after"""


class ResidualRegisters(TypedDict):
    """Registers of one RESIDUAL unit."""

    res: int
    """residual buffer word of pixel (0, 0), block 0"""
    res_row_pitch: int
    """residual words from row to row"""
    res_block_pitch: int
    """residual words from block to block"""
    res_a_mult: int
    """multiplier of the chain's operand"""
    res_b_mult: int
    """multiplier of the residual buffer's operand"""
    res_shift: int
    """right shift of the sum"""
    res_a_zero: int
    """zero point of the chain's operand"""
    res_b_zero: int
    """zero point of the residual operand"""
    res_y_zero: int
    """zero point of the sum"""
    res_kind: int
    """0 sum, 1 product (multiplier res_a_mult), 2 maximum"""
    res_broadcast: int
    """1: one residual word a block, the same for every pixel"""
    res_negative: int
    """of a sum, 1: minus the chain's operand, 2: minus the other"""


class TableRegisters(TypedDict):
    """Registers of one TABLE unit."""

    table: int
    """table memory word of the entry for -128"""


class PreluRegisters(TypedDict):
    """Registers of one PRELU unit."""

    prelu_pos: int
    """slope multiplier at and above the zero point"""
    prelu_shift: int
    """right shift after the slope"""
    prelu_x_zero: int
    """zero point before"""
    prelu_y_zero: int
    """zero point after"""


class NormRegisters(TypedDict):
    """Registers of one NORM unit."""

    norm_op: int
    """0 max, 1 expsum, 2 softmax, 3 moments, 4 squares, 5 normalise; map: 6, 7; quarter: 8 to 11"""
    norm_table: int
    """norm memory word of the exponential of 0"""
    norm_idle: int
    """lanes of the last block that hold no channel"""
    norm_zero: int
    """zero point of the result; squares: of the operand"""
    norm_scale: int
    """expsum: mantissa of 1/scale, less 1; moments: of epsilon"""
    norm_shift: int
    """expsum: exponent of 1/scale; moments: of epsilon"""


class PostParams(
    ActRegisters,
    PoolRegisters,
    ResidualRegisters,
    TableRegisters,
    PreluRegisters,
    NormRegisters,
):
    """Parameters of the post engine's instructions."""

    psum: int
    """partial sum word of tile pixel (0, 0), block 0"""
    psum_row_pitch: int
    """partial sum words from tile row to tile row"""
    psum_block_pitch: int
    """partial sum words from block to block"""
    in_rows: int
    """tile rows; window positions outside are absent"""
    in_cols: int
    """tile columns; window positions outside are absent"""
    origin_y: int
    """tile row of output row 0, window row 0"""
    origin_x: int
    """tile column of output column 0, window column 0"""
    stride_y: int
    """tile rows between output rows, >= 1"""
    stride_x: int
    """tile columns between output columns, >= 1"""
    win_rows: int
    """window rows (1 without pooling)"""
    win_cols: int
    """window columns (1 without pooling)"""
    out_rows: int
    """output rows"""
    out_cols: int
    """output columns"""
    blocks: int
    """channel blocks"""
    param: int
    """parameter buffer word of block 0"""
    out: int
    """output buffer word of output pixel (0, 0), block 0"""
    out_row_pitch: int
    """output buffer words from row to row"""
    out_block_pitch: int
    """output buffer words from block to block"""
    order: int
    """post chain: codes of modules, four bits each, first stage lowest"""
    requant_zero: int
    """zero point after REQUANT"""
    pool_slots: int
    """max: pixels of a word that are pooled with each other (0, 2 or 4)"""
    keep: int
    """1: every output word goes into the feature buffer, too"""
    keep_at: int
    """feature buffer word of output pixel (0, 0), block 0"""
    keep_row_pitch: int
    """feature words from row to row"""
    keep_block_pitch: int
    """feature words from block to block"""
    order_2: int
    """post chain: sixth to tenth stage"""
    order_3: int
    """post chain: eleventh to fifteenth stage"""
    spread: int
    """pixels of a word (2 or 4), each to a word of its own, plus the slot of second operands"""


class StoreParams(TypedDict):
    """Parameters of the store engine's instructions."""

    dram_lo: int
    """byte offset in the memory window, bits 21:0"""
    dram_hi: int
    """byte offset in the memory window, bits 31:22"""
    src: int
    """first output buffer word read; words are read contiguously"""
    run: int
    """words per contiguous run, >= 1"""
    rows: int
    """runs per block, >= 1"""
    row_pitch: int
    """DRAM words from run to run; unfold: image words from output row to row"""
    blocks: int
    """blocks, >= 1"""
    block_pitch: int
    """DRAM words from block to block"""
    word_gap: int
    """DRAM words left out between words of a run"""
    repeat_rows: int
    """further times every run is written, each a row_pitch on"""
    repeat_cols: int
    """further times every word is written, consecutively"""
    skip_low: int
    """bytes at the low end of every word that are not written"""
    skip_high: int
    """bytes at the high end of every word that are not written"""
