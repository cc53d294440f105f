"""`asm`: text back to words; `order` names stages of a machine."""

import numpy as np
import pytest

from opu_fuse.bundle.file import load
from tests.cli.test_messages import refused


@pytest.fixture
def listing(opu_fuse, program_file, tmp_path):
    """The listing of a program for opu-tiny."""
    path = tmp_path / "net.asm"
    path.write_text(opu_fuse("inspect", program_file, "--asm").out)
    return path


def test_a_listing_assembles_to_the_words_it_shows(opu_fuse, program_file, listing, tmp_path):
    assert " order=requant,res_add,compare " in listing.read_text()
    words = tmp_path / "net.bin"
    called = opu_fuse("asm", listing, "--hw", "opu-tiny", "-o", words)
    assert (called.code, called.err) == (0, "")
    assert np.array_equal(np.fromfile(words, "<u4"), load(program_file).words)


def test_names_of_stages_need_their_machine(opu_fuse, listing, tmp_path):
    path = tmp_path / "net.bin"
    refused(opu_fuse("asm", listing, "-o", path), "net.asm:", "names stages of a machine", "--hw")
    other = opu_fuse("asm", listing, "--hw", "opu-micro", "-o", path)
    refused(other, "net.asm:", "order: unknown stage 'res_add'; stages: requant, pool, compare")
    assert not path.exists()
