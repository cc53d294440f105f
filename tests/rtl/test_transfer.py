"""Fetch, load and store engines against memories with random stalls."""

from dataclasses import replace

import pytest

from opu_fuse.hw.load import load_hw
from tests.rtl.bench import run_bench

pytestmark = pytest.mark.rtl


@pytest.fixture(params=["as the word", "half of it"])
def machine(request, tmp_path):
    """opu-tiny, and the same with a bus that needs two beats for a word."""
    if request.param == "as the word":
        return "opu-tiny"
    spec = load_hw("opu-tiny")
    narrow = replace(spec, name="opu-narrow", dram=replace(spec.dram, bus_bytes=4, max_burst=256))
    path = tmp_path / "opu-narrow.yaml"
    path.write_text(narrow.to_yaml(), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("engine", ["load", "store", "fetch"])
def test_engine_keeps_its_page_and_the_rules_of_the_bus(
    monkeypatch, tmp_path, seed, machine, engine
):
    run_bench(
        monkeypatch,
        tmp_path,
        top=f"opu_{engine}",
        module=f"rtl_sim.benches.{engine}_bench",
        spec=machine,
        seed=seed,
        rounds=60,
        public=True,
    )
