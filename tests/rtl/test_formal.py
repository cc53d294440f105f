"""Proofs of `rtl_sim/formal`: they hold, and fail where the module has a mistake."""

import shutil

import pytest

from opu_fuse.resources import rtl_dir
from rtl_sim.formal.__main__ import PROOFS, holds

pytestmark = pytest.mark.rtl
CHEAP = {
    proof.name: proof for proof in reversed(PROOFS) if proof.name in ("opu_queue", "opu_round")
}
MISTAKES = {
    "opu_queue": ("control/opu_queue.sv", "room_q <= pop || (push", "room_q <= 1'b1 || (push"),
    "opu_counters": ("control/opu_frontend.sv", "&& tokens_here && open_ready", "&& open_ready"),
    "opu_read_arbiter": ("axi/opu_read_arbiter.sv", "(!valid_q || bus_ar_ready_i) &&", ""),
    "opu_csr": ("control/opu_csr.sv", "aw_here_q && w_here_q &&", "aw_here_q &&"),
    "opu_csr while a program runs": ("control/opu_csr.sv", "if (start_o)", "if (begins)"),
    "opu_control": ("control/opu_control.sv", "DRAIN: if (over)", "DRAIN: if (1'b1)"),
    "opu_walk": ("axi/opu_walk.sv", "!left[FAR_BITS] && !run_last_q", "!run_last_q"),
    "opu_store": ("store/opu_store.sv", ".pop_ready_i (aw_ready_i)", ".pop_ready_i (1'b1)"),
    "opu_unfold": ("load/opu_unfold.sv", "!ends_q.row) ? row_at_q", "!ends_q.row) ? next_at_q"),
    "opu_fetch": ("fetch/opu_fetch.sv", "!read && room_q >= burst_q;", "!read;"),
    "opu_store_halt": (
        "axi/opu_walk.sv",
        "burst_valid_o = cur_valid_q && !halt_i",
        "burst_valid_o = cur_valid_q",
    ),
    "opu_halt": ("control/opu_control.sv", "over = quiet_i || abort_q", "over = abort_q"),
    "opu_halt after an abort": (
        "control/opu_control.sv",
        " || (state_q != IDLE && abort_i));",
        ");",
    ),
    "opu_read_arbiter after an abort": (
        "axi/opu_read_arbiter.sv",
        "bus_r_valid_i && some_q",
        "bus_r_valid_i",
    ),
    "opu_store_halt after an abort": (
        "store/opu_store.sv",
        "answered = b_valid_i && answer_valid",
        "answered = b_valid_i",
    ),
    "opu_multiply_soft": (
        "common/opu_multiply_soft.sv",
        "positive: !x[2]",
        "positive: 1'b0",
    ),
    "opu_multiply_pair": ("compute/opu_multiply_pair.sv", "if (load_i)", "if (1'b1)"),
    "opu_multiply_pair_sums": ("compute/opu_sum_tree.sv", "g_term[2*t+1].sum)", "g_term[2*t].sum)"),
    "opu_multiply_tables": ("compute/opu_multiply_tables.sv", "^ {2{s + 1 == 7}}", ""),
    "opu_round": ("common/opu_round.sv", "odd || rest_q != '0", "rest_q != '0"),
}
"""Of each proof, some more than one: a file, what stands there, a mistake."""
BY_NAME = {proof.name: proof for proof in PROOFS}


@pytest.fixture
def mistaken(monkeypatch, tmp_path):
    """Puts the mistake of a proof into the RTL."""

    def change(name):
        folder = tmp_path / "rtl_sim"
        shutil.copytree(rtl_dir(), folder)
        file, right, wrong = MISTAKES[name]
        text = (folder / "rtl" / file).read_text(encoding="utf-8")
        (folder / "rtl" / file).write_text(text.replace(right, wrong), encoding="utf-8")
        monkeypatch.setattr("opu_fuse.resources.rtl_dir", lambda: folder)

    return change


def test_every_proof_has_a_mistake():
    assert BY_NAME.keys() == {mistake.split()[0] for mistake in MISTAKES}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_its_place(name):
    file, right, _ = MISTAKES[name]
    text = (rtl_dir() / "rtl" / file).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{file} has changed: choose another mistake"


@pytest.mark.parametrize("proof", CHEAP.values(), ids=lambda proof: proof.name)
def test_a_cheap_proof_holds_and_fails_where_there_is_a_mistake(proof, mistaken, capsys):
    assert holds(proof)
    mistaken(proof.name)
    assert not holds(proof)
    assert "Assert failed" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.text)
def test_every_proof_holds(proof):
    assert holds(proof)


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_proof_finds_a_mistake(mistake, mistaken):
    mistaken(mistake)
    assert not holds(BY_NAME[mistake.split()[0]])
