"""Proofs of `rtl_sim/formal`: they hold, and fail where the module has a mistake."""

import shutil

import pytest

from opu_fuse.resources import rtl_dir
from rtl_sim.formal.__main__ import PROOFS, holds

pytestmark = pytest.mark.rtl
QUEUE = PROOFS[0]
MISTAKES = {
    "opu_queue": ("control/opu_queue.sv", "room_q <= pop || count_q", "room_q <= 1'b1 || count_q"),
    "opu_counters": ("control/opu_frontend.sv", "&& tokens_here && open_ready", "&& open_ready"),
    "opu_read_arbiter": ("axi/opu_read_arbiter.sv", "(!valid_q || bus_ar_ready_i) &&", ""),
    "opu_csr": ("control/opu_csr.sv", "aw_here_q && w_here_q &&", "aw_here_q &&"),
    "opu_control": ("control/opu_control.sv", "DRAIN: if (over)", "DRAIN: if (1'b1)"),
    "opu_walk": ("axi/opu_walk.sv", "fits = !room_q[ROOM_BITS-1]", "fits = 1'b1"),
    "opu_store": ("store/opu_store.sv", ".pop_ready_i (aw_ready_i)", ".pop_ready_i (1'b1)"),
}
"""Of each proof: a file, what stands there, a mistake."""


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


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_its_place(name):
    file, right, _ = MISTAKES[name]
    text = (rtl_dir() / "rtl" / file).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{file} has changed: choose another mistake"


def test_a_queue_keeps_its_entries_and_a_queue_with_a_mistake_does_not(mistaken, capsys):
    assert holds(QUEUE)
    mistaken(QUEUE.name)
    assert not holds(QUEUE)
    assert "Assert failed" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.text)
def test_every_proof_holds(proof):
    assert holds(proof)


@pytest.mark.nightly
@pytest.mark.parametrize("proof", {p.name: p for p in PROOFS}.values(), ids=lambda p: p.name)
def test_every_proof_finds_a_mistake(proof, mistaken):
    mistaken(proof.name)
    assert not holds(proof)
