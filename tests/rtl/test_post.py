"""The post engine against the page that defines it."""

import pytest

from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize(("spec", "rounds"), [("opu-tiny", 40), ("opu-1024", 4)])
def test_post_engine_keeps_its_page(monkeypatch, tmp_path, seed, spec, rounds):
    run_bench(
        monkeypatch,
        tmp_path,
        top="opu_post_bench",
        module="rtl_sim.benches.post_bench",
        spec=spec,
        seed=seed,
        rounds=rounds,
    )
