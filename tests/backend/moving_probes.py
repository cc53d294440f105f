"""The forms of operators that only move channels and pixels (see `operator_probes.py`)."""

from tests.backend.operator_probe import Probe

MOVING: tuple[Probe, ...] = (
    Probe(
        "Concat",
        "of channels",
        "c = Conv (a, w3) b = Concat <axis = 1> (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
        channels=16,
    ),
    Probe(
        "Concat",
        "of rows or columns",
        "c = Conv (a, w3) b = Concat <axis = 2> (a, c)",
        inputs="float[8,8,1,1] w3",
        others=("conv",),
    ),
    Probe(
        "Split",
        "of channels",
        "c = Conv (a, w3) p, q = Split <axis = 1> (c, s) d = Conv (p, w4) e = Conv (q, w5) "
        "b = Concat <axis = 1> (d, e)",
        inputs="float[16,8,1,1] w3, float[4,8,1,1] w4, float[4,8,1,1] w5",
        numbers="int64[2] s = {8, 8}",
        others=("conv", "conv", "conv", "concat"),
    ),
    Probe(
        "Slice",
        "of channels",
        "b = Slice (a, s, e, i)",
        numbers="int64[1] s = {0}, int64[1] e = {4}, int64[1] i = {1}",
        channels=4,
    ),
    Probe(
        "Slice",
        "of rows and columns",
        "r = Relu (a) b = Slice (r, s, e, i)",
        others=("relu",),
        numbers="int64[2] s = {1, 1}, int64[2] e = {7, 6}, int64[2] i = {2, 3}",
    ),
    Probe(
        "Slice",
        "every n-th row and column",
        "b = Slice (a, s, e, i, d)",
        numbers="int64[2] s = {0, 0}, int64[2] e = {8, 8}, int64[2] i = {2, 3}, "
        "int64[2] d = {2, 2}",
    ),
    Probe(
        "Gather",
        "of channels, constant indices",
        "b = Gather <axis = 1> (a, s)",
        numbers="int64[8] s = {7, 6, 5, 4, 3, 2, 1, 0}",
    ),
    Probe(
        "Transpose",
        "channels last and back, around pointwise operators",
        "t = Transpose <perm = [0, 2, 3, 1]> (a) r = Relu (t) "
        "b = Transpose <perm = [0, 3, 1, 2]> (r)",
        others=("relu",),
    ),
    Probe(
        "Reshape",
        "another rank; channels and pixels unchanged",
        "p = GlobalAveragePool (a) f = Reshape (p, s) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,8] w3",
        numbers="int64[2] s = {1, 8}",
        others=("avg_pool", "dense"),
    ),
    Probe(
        "Reshape",
        "with a Transpose between: channel shuffle",
        "p = Reshape (a, s) t = Transpose <perm = [0, 2, 1, 3, 4]> (p) b = Reshape (t, e)",
        numbers="int64[5] s = {1, 2, 4, 8, 8}, int64[4] e = {1, 8, 8, 8}",
    ),
    Probe(
        "Reshape",
        "with a Transpose between: windows or patches as rows of tokens, and back",
        "p = Reshape (a, s) t = Transpose <perm = [0, 1, 2, 4, 3, 5]> (p) b = Reshape (t, e)",
        numbers="int64[6] s = {1, 8, 2, 4, 2, 4}, int64[4] e = {1, 8, 4, 16}",
    ),
    Probe(
        "Flatten",
        "before a dense layer",
        "f = Flatten (a) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,512] w3",
        others=("dense",),
    ),
    Probe(
        "Squeeze",
        "before a dense layer",
        "p = GlobalAveragePool (a) f = Squeeze (p, s) y = Gemm <transB = 1> (f, w3)",
        inputs="float[4,8] w3",
        others=("avg_pool", "dense"),
        numbers="int64[2] s = {2, 3}",
    ),
    Probe(
        "Unsqueeze",
        "a row to a map (1, c, 1, 1)",
        "p = GlobalAveragePool (a) f = Flatten (p) h = Gemm <transB = 1> (f, w3) "
        "b = Unsqueeze (h, s)",
        others=("avg_pool", "reshape", "dense"),
        inputs="float[8,8] w3",
        numbers="int64[2] s = {2, 3}",
    ),
    Probe("Identity", "any", "b = Identity (a)"),
    Probe("Dropout", "not in training", "b = Dropout (a)"),
    Probe(
        "Pad",
        "rows and columns by a constant",
        "b = Pad (a, s)",
        numbers="int64[8] s = {0, 0, 1, 1, 0, 0, 1, 1}",
    ),
    Probe("DepthToSpace", "blocks up to 4", "b = DepthToSpace <blocksize = 2> (a)", channels=2),
    Probe("SpaceToDepth", "blocks up to 4", "b = SpaceToDepth <blocksize = 2> (a)", channels=32),
    Probe(
        "Resize",
        "nearest, whole factors",
        'b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", '
        'nearest_mode = "floor"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Probe(
        "Resize",
        "linear, whole factors",
        'b = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Probe(
        "Resize",
        "to a half, third or quarter",
        'b = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , k)',
        numbers="float[4] k = {1.0, 1.0, 0.5, 0.5}",
    ),
    Probe(
        "Tile", "of channels", "b = Tile (a, s)", numbers="int64[4] s = {1, 2, 1, 1}", channels=16
    ),
    Probe(
        "Tile",
        "of the one row or column",
        "p = GlobalAveragePool (a) b = Tile (p, s)",
        others=("avg_pool",),
        numbers="int64[4] s = {1, 1, 8, 8}",
    ),
    Probe(
        "Expand",
        "of the one row or column",
        "p = GlobalAveragePool (a) b = Expand (p, s)",
        others=("avg_pool",),
        numbers="int64[4] s = {1, 8, 8, 8}",
    ),
    Probe(
        "Upsample",
        "nearest, whole factors",
        'b = Upsample <mode = "nearest"> (a, k)',
        numbers="float[4] k = {1.0, 1.0, 2.0, 2.0}",
        opset=9,
    ),
)
