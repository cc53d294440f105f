"""The machines that ship: sound, of the promised sizes, with an identity that survives writing."""

import dataclasses

import pytest

from opu_fuse.errors import SpecError
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text, problems, spec_names
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access, ModuleKind


@pytest.mark.parametrize("name", spec_names())
def test_a_shipped_spec_is_sound_and_named_after_its_file(name):
    assert problems(name) == ()
    assert load_hw(name).name == name


@pytest.mark.parametrize("name", spec_names())
def test_a_resolved_spec_reads_back_equal(name):
    spec = load_hw(name)
    again = load_hw_text(spec.to_yaml())
    assert again == spec
    assert again.spec_hash == spec.spec_hash
    assert hash(again) == hash(spec)


def test_the_published_machine_has_its_published_size():
    spec = load_hw("opu-1024")
    assert spec.macs == 1024
    assert spec.clock_mhz == 200
    assert spec.dram.bytes_per_cycle == 64
    modes = [(m.ic, m.oc, m.px) for m in spec.array.modes]
    assert modes[:3] == [(64, 16, 1), (32, 32, 1), (16, 64, 1)]
    assert modes[3:] == [(32, 16, 2), (16, 32, 2), (16, 16, 4)], "not published: several pixels"
    assert (spec.array.row_bytes, spec.row_words, spec.word_bytes) == (1024, 16, 64)


def test_the_tiny_machine_is_the_large_one_without_its_extras():
    tiny, large = load_hw("opu-tiny"), load_hw("opu-1024")
    extras = {"mul_pre", "compare_pre", "upsample"}
    assert tiny.dataflow.modules == {
        name: module for name, module in large.dataflow.modules.items() if name not in extras
    }
    assert tiny.numeric == large.numeric
    assert (tiny.macs, tiny.word_channels, tiny.row_words) == (32, 8, 4)


def test_the_classic_machine_only_shifts_and_buffers_once():
    spec = load_hw("opu-classic")
    buffers = spec.buffers
    assert spec.build
    assert spec.numeric.multiplier_bits == 0
    assert [b.banks for b in (buffers.residual, buffers.psum, buffers.output)] == [1, 1, 1]
    assert buffers.feature.bank_words == buffers.psum.bank_words == 38 * 38


def test_the_light_machine_covers_nine_taps_with_a_depthwise_window():
    spec = load_hw("opu-light")
    assert (spec.macs, spec.array.depthwise, spec.array.window_side) == (512, True, 4)
    assert spec.has(ModuleKind.TABLE)
    assert spec.has(ModuleKind.SE)


def test_the_micro_machine_pools_before_it_compares_and_has_little_else():
    spec = load_hw("opu-micro")
    assert spec.dataflow.edges["pool"] == ("compare",)
    assert not spec.has(ModuleKind.RES_ADDER, ModuleKind.UPSAMPLE, ModuleKind.SE, ModuleKind.TABLE)
    assert spec.dram.bytes_per_cycle == 16


def test_the_classic_graph_is_the_published_one():
    flow = load_hw("opu-classic").dataflow
    assert flow.root == "concat"
    assert {name: tuple(targets) for name, targets in flow.edges.items()} == {
        "concat": ("add_pre",),
        "add_pre": ("mul_pre",),
        "mul_pre": ("pad",),
        "pad": ("ipa",),
        "ipa": ("mul",),
        "mul": ("add",),
        "add": ("compare", "pool_pad", "res_add"),
        "pool_pad": ("pool",),
        "compare": ("pool", "res_add", "upsample"),
        "pool": ("compare", "res_add"),
        "res_add": ("compare", "pool", "upsample"),
    }
    assert flow.operators["add"] == (ModuleKind.ADDER, ModuleKind.RES_ADDER)


def test_bias_and_residual_adders_differ_in_access_and_domain():
    modules = load_hw("opu-tiny").dataflow.modules
    bias, residual = modules["add"], modules["res_add"]
    assert (bias.operand, bias.domain_in, bias.domain_out) == (
        Access.PER_CHANNEL,
        Domain.ACC,
        Domain.ACC,
    )
    assert (residual.operand, residual.domain_in) == (Access.FULL, Domain.ACT)


def test_the_identity_ignores_what_only_describes_the_memory():
    spec = load_hw("opu-tiny")
    slower = dataclasses.replace(spec.dram, bytes_per_cycle=1.0, latency=500)
    other = dataclasses.replace(spec, dram=slower, description="other", clock_on="a device")
    assert other.spec_hash == spec.spec_hash


def test_a_measured_clock_is_not_inherited(tmp_path):
    base, heir = tmp_path / "base.yaml", tmp_path / "heir.yaml"
    base.write_text("extends: opu-tiny\nname: base\nclock_mhz: 90\nclock_on: a device\n")
    heir.write_text("extends: base.yaml\nname: heir\n")
    assert load_hw(base).clock == "90 MHz, measured on a device"
    assert load_hw(heir).clock == "90 MHz, assumed"


@pytest.mark.parametrize(
    "change",
    [
        {"counter_bits": 7},
        {"word_channels": 4},
        {"name": "other"},
        {"clock_mhz": 101.0},
    ],
)
def test_the_identity_changes_with_the_machine(change):
    spec = load_hw("opu-tiny")
    assert dataclasses.replace(spec, **change).spec_hash != spec.spec_hash


def test_the_identity_fits_the_two_registers_of_check():
    for name in spec_names():
        assert 0 <= load_hw(name).spec_hash < 1 << 44


def test_words_are_padded_to_a_power_of_two_in_memory():
    spec = dataclasses.replace(load_hw("opu-classic"), word_channels=24)
    assert spec.word_bytes == 32


def test_a_spec_cannot_be_changed_after_it_was_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_hw("opu-tiny").__setattr__("counter_bits", 3)


def test_an_unknown_name_lists_the_machines_that_exist():
    with pytest.raises(SpecError) as error:
        load_hw("opu-1025")
    text = str(error.value)
    assert "opu-1025: unknown machine" in text
    assert "opu-1024, opu-1024-lean, opu-1024a, opu-1024t, opu-classic, opu-light" in text
    assert "opu-ulx3s" in text
    assert "did you mean 'opu-1024'" in text


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"gone\.yaml: no such file"):
        load_hw(tmp_path / "gone.yaml")


def test_a_spec_can_extend_a_shipped_one_and_change_one_key(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: opu-tiny\nname: mine\ndram: {latency: 3}\n")
    mine, tiny = load_hw(path), load_hw("opu-tiny")
    assert mine.dram.latency == 3
    assert mine.dram.bus_bytes == tiny.dram.bus_bytes
    assert mine.dataflow == tiny.dataflow


def test_a_spec_can_extend_its_neighbour_file_and_remove_inherited_keys(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: opu-tiny\nname: base\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: base.yaml\nname: mine\n"
        "dataflow:\n"
        "  modules: {pool: null}\n"
        "  edges: {pool: null, add: [compare, res_add], compare: [res_add], res_add: [compare]}\n"
        "  operators: {max_pool: null, avg_pool: null}\n"
    )
    assert "pool" not in load_hw(path).dataflow.modules


def test_domain_is_short_for_both_sides(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: opu-tiny\nname: mine\n"
        "dataflow: {modules: {add: {domain_in: null, domain_out: null, domain: acc}}}\n"
    )
    assert load_hw(path).dataflow == load_hw("opu-tiny").dataflow
