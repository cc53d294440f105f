"""The compute engine against the page that defines it."""

import pytest

from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


CASES = {
    "tiny": ("opu-tiny", 80, ()),
    "tiny, widths as synthesised": ("opu-tiny", 80, ("OPU_EXACT_WIDTHS",)),
    "1024": ("opu-1024", 15, ()),
}


@pytest.mark.parametrize(("spec", "rounds", "defines"), CASES.values(), ids=CASES.keys())
def test_compute_engine_keeps_its_page(monkeypatch, tmp_path, seed, spec, rounds, defines):
    run_bench(
        monkeypatch,
        tmp_path,
        top="opu_compute_bench",
        module="rtl_sim.benches.compute_bench",
        spec=spec,
        seed=seed,
        rounds=rounds,
        defines=defines,
    )
