"""Which tests concern a file, and which of its mutants do the same as the file."""

LAYERS = ["tests/networks/test_lanes.py", "tests/schedule/test_single_layer.py"]
"""Bits of layers and of small networks, in less than half a minute."""

CONCERN = {
    "opu_fuse/fixedpoint.py": ["tests/test_fixedpoint.py"],
    "opu_fuse/dfg/integer.py": ["tests/dfg/test_integer.py"],
    "opu_fuse/codegen/": ["tests/codegen", *LAYERS, "tests/schedule/test_light_layers.py"],
    "opu_fuse/schedule/": ["tests/schedule/test_dependencies.py", *LAYERS],
}
"""The first row that a file's path begins with."""

RNE = "return np.where(shift >= 0, floor + up, x << np.maximum(-shift, 0))"
SIDE = "slope = np.where(centred < 0, np.int64(neg), np.int64(pos))"
FINER = "while shift < MAX_SHIFT and np.ldexp(top, shift + 1) <= limit and not exact():"
FLOAT = "dtype = np.float32 if terms * 128 * 128 < 1 << 24 else np.float64"
REACH = "if rows.shape[1] * INT8_MIN**2 + np.abs(bias).max(initial=0) < ACC_LIMIT:"

EQUIVALENT = {
    ("opu_fuse/fixedpoint.py", RNE): {
        "shift >= 0 → shift > 0": "a shift by 0 is the value, either way",
        "0 → 1": "a shift by 0 is the value, either way; negative shifts are -1 or less",
    },
    ("opu_fuse/fixedpoint.py", SIDE): {
        "centred < 0 → centred <= 0": "at the zero point every slope gives 0",
        "0 → 1": "at the zero point every slope gives 0",
    },
    ("opu_fuse/fixedpoint.py", "if shift < 0:"): {
        "shift < 0 → shift <= 0": "a shift by 0 is the value",
        "0 → 1": "a shift by 0 is the value",
    },
    ("opu_fuse/fixedpoint.py", FINER): {
        "np.ldexp(top, shift + 1) <= limit → np.ldexp(top, shift + 1) < limit": "the limit is odd: "
        "a ratio that reaches it is exact there, and `lead` has that shift",
    },
    ("opu_fuse/fixedpoint.py", "limit = (1 << bits) - 1"): {
        "1 → 2": "as above: no ratio reaches the limit by another shift",
    },
    ("opu_fuse/fixedpoint.py", FLOAT): {
        "np.float32 if terms * 128 * 128 < 1 << 24 else np.float64 → np.float32 if False else "
        "np.float64": "slower, and exact too",
        "1 << 24 → 1 >> 24": "slower, and exact too",
        "terms * 128 * 128 < 1 << 24 → terms * 128 * 128 <= 1 << 24": "float32 holds 2**24",
    },
    ("opu_fuse/dfg/integer.py", "rows = weight.reshape(weight.shape[0], -1)"): {
        "1 → 2": "numpy takes every negative length for the one to find out",
    },
    ("opu_fuse/dfg/integer.py", "if x.zero_point:"): {
        "if x.zero_point: → if True:": "0 times anything is 0: saves the sum only",
    },
    ("opu_fuse/dfg/integer.py", REACH): {
        f"{REACH.replace('INT8_MIN**2', 'INT8_MIN ** 2')} → if False:": "saves the exact sum only",
        "0 → 1": "sums that come within 1 of the limit are looked at exactly, or have a bias",
    },
    ("opu_fuse/dfg/integer.py", "if reach.max(initial=0) >= ACC_LIMIT:"): {
        "0 → 1": "1 is far from the limit, too",
    },
}
"""(file, text of the line) -> change -> why it cannot matter."""


def tests_of(file: str) -> list[str]:
    return next(tests for path, tests in CONCERN.items() if file.startswith(path))


def is_equivalent(file: str, text: str, change: str) -> bool:
    return change in EQUIVALENT.get((file, text), {})
