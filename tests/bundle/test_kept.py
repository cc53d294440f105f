"""A program file of users runs as long as its schema version is read.

When this fails, mend what was changed. If it cannot be otherwise, raise SCHEMA_VERSION and keep a
new file (`tests/bundle/kept_programs.py`).
"""

import zipfile

import numpy as np
import pytest

from opu_fuse.bundle.listing import program_listing
from opu_fuse.sim.compare.runs import check
from tests.bundle.kept_programs import PROGRAMS, VERSIONS, kept


@pytest.mark.parametrize("version", VERSIONS)
def test_a_kept_file_gives_the_answer_it_gave(version: int):
    program, inputs, outputs = kept(version)
    result = program.run(inputs, capture=True)
    assert result.outputs.keys() == outputs.keys()
    for name, expected in outputs.items():
        np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-5)  # host: floats
    assert check(program.bundle, inputs, result).passed
    assert program.run(engine="cycle").counters["cycles"] > 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_instructions_of_a_kept_file_mean_what_they_meant(version: int):
    program, _, _ = kept(version)
    with zipfile.ZipFile(PROGRAMS[version]) as archive:
        assert archive.read("program.asm").decode() == program_listing(program.bundle, program.hw)
