"""Which tests concern a file, and which of its mutants do the same as the file."""

from pathlib import Path

import yaml

LAYERS = [
    "tests/networks/test_lanes.py",
    "tests/networks/test_graph_machines.py",
    "tests/schedule/test_light_layers.py",
    "tests/schedule/test_single_layer.py",
]
"""Bits of layers and of small networks, in about half a minute."""

CONCERN = {
    "opu_fuse/fixedpoint.py": ["tests/test_fixedpoint.py"],
    "opu_fuse/dfg/integer.py": ["tests/dfg/test_integer.py"],
    "opu_fuse/units/": ["tests/dfg/test_integer.py", "tests/sim/test_legal.py", *LAYERS],
    "opu_fuse/codegen/": ["tests/codegen", *LAYERS],
    "opu_fuse/schedule/dependencies.py": [
        "tests/schedule/test_tokens.py",
        "tests/schedule/test_dependencies.py",
    ],
    "opu_fuse/schedule/memory.py": ["tests/schedule/test_memory.py"],
    "opu_fuse/schedule/order.py": ["tests/schedule/test_order.py"],
    "opu_fuse/schedule/proofs.py": [
        "tests/schedule/test_proofs.py",
        "tests/schedule/test_tokens.py",
    ],
    "opu_fuse/schedule/registers.py": ["tests/schedule/test_registers.py"],
    "opu_fuse/schedule/cascades.py": ["tests/schedule/test_cascades.py"],
    "opu_fuse/schedule/units.py": [
        "tests/schedule/test_cascades.py",
        "tests/schedule/test_keeping.py",
    ],
    "opu_fuse/schedule/": LAYERS,
}
"""The first row that a file's path begins with."""

EQUIVALENT: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent.yaml").read_text(encoding="utf-8")
)
"""File -> text of a line -> change -> why it cannot matter."""


def tests_of(file: str) -> list[str]:
    return next(tests for path, tests in CONCERN.items() if file.startswith(path))


def is_equivalent(file: str, text: str, change: str) -> bool:
    return change in EQUIVALENT.get(file, {}).get(text, {})
