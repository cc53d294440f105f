"""The post engine against the page that defines it."""

import pytest

from tests.rtl.bench import run_bench
from tests.rtl.machines import write_machine

pytestmark = pytest.mark.rtl


CASES = {
    "tiny": ("opu-tiny", 80, ()),
    "tiny, widths as synthesised": ("opu-tiny", 80, ("OPU_EXACT_WIDTHS",)),
    "tiny, short slices": ("opu-tiny", 40, ("OPU_EXACT_WIDTHS", "OPU_SHORT_SLICES")),
    "micro": ("opu-micro", 40, ()),
    "1024": ("opu-1024", 15, ()),
    "light": ("opu-light", 15, ()),
    "every module": ("every-module", 25, ()),
    "every module, widths as synthesised": ("every-module", 30, ("OPU_EXACT_WIDTHS",)),
    "slopes": ("slopes", 40, ()),
    "slopes, widths as synthesised": ("slopes", 40, ("OPU_EXACT_WIDTHS",)),
    "few modules": ("few-modules", 40, ()),
    "four turns": ("four-turns", 8, ()),
    "four turns, widths as synthesised": ("four-turns", 6, ("OPU_EXACT_WIDTHS",)),
    "slow sums": ("slow-sums", 4, ()),
    "slow sums, widths as synthesised": ("slow-sums", 4, ("OPU_EXACT_WIDTHS",)),
    "sums in tables": ("sums-in-tables", 40, ()),
    "sums in tables, widths as synthesised": ("sums-in-tables", 20, ("OPU_EXACT_WIDTHS",)),
    "two turns": ("two-turns", 8, ("OPU_EXACT_WIDTHS",)),
    "no multipliers": ("no-multipliers", 30, ("OPU_EXACT_WIDTHS",)),
}


SLOPES = {name for name in CASES if name.startswith("slopes")}
LIKE_OTHERS = {"micro", "tiny", "1024", "light", "two turns"} | SLOPES
"""What they have, `tiny, widths as synthesised`, `every module` and `four turns` have, too."""
LONG = {"slow sums, widths as synthesised"}
"""A round takes 15 seconds."""
TWINS = {name for name in CASES if f"{name}, widths as synthesised" in CASES} - {"tiny"}
"""With whole widths these find no more than as synthesised, where they prove these to suffice."""
BY_NIGHT = LIKE_OTHERS | LONG | TWINS


@pytest.mark.parametrize(
    ("spec", "rounds", "defines"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.nightly] * (name in BY_NIGHT))
        for name, case in CASES.items()
    ],
)
def test_post_engine_keeps_its_page(tmp_path, seed, spec, rounds, defines):
    run_bench(
        tmp_path,
        top="opu_post_bench",
        module="rtl_sim.benches.post_bench",
        spec=write_machine(spec, tmp_path),
        seed=seed,
        rounds=rounds,
        defines=defines,
    )
