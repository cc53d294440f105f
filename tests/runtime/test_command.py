"""`opu-run`: a program file run from C, under sanitizers and on other processors."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from tests.runtime.commands import CROSS, case_of, cross_command, run_command, same_outputs
from tests.runtime.test_host_segments import CLOSE, joined_model, model_of
from tests.tiers import by_night


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A network with a concatenation on the host, two images at a time."""
    return _case(joined_model(), tmp_path_factory.mktemp("joined"), batch=2)


def _case(model, folder, **options):
    bundle = compile_model(model, load_hw("opu-tiny"), Options(host="c", **options)).bundle
    return case_of(bundle, folder)


def test_a_network_with_host_segments_under_sanitizers(command, joined):
    assert same_outputs(command, joined)


@pytest.mark.parametrize("processor", by_night(CROSS, ["riscv64", "arm"]))
def test_other_processors_compute_the_same_bits(processor, command, joined, tmp_path):
    cross = cross_command(processor, tmp_path)
    assert same_outputs(cross, joined)
    softmax = _case(model_of(*CLOSE["softmax"]), tmp_path, keep_float=("only",))
    results = []
    for each in (command, cross):
        same_outputs(each, softmax)
        results.append(softmax[2][0][0].read_bytes())
    assert results[0] == results[1]


def test_it_lists_ports_and_says_what_is_wrong(command, joined, tmp_path):
    program, files, outputs = joined
    assert "input x: type 1 [1, 4, 6, 5]" in run_command(command, program).stdout
    cut = tmp_path / "cut.opu"
    cut.write_bytes(program.read_bytes()[:-100])
    odd = tmp_path / "odd"
    odd.write_bytes(files[0].read_bytes()[:-1])
    for words, text in (
        ((cut,), "cut.opu: end of the ZIP: the file is damaged"),
        ((program, odd, outputs[0][0]), "holds no whole images"),
        ((program, files[0]), "one file for each input"),
        ((tmp_path / "none",), "cannot be read"),
        (("-d", "uio:9", program, files[0], outputs[0][0]), "/dev/uio9: "),
        (("-d", "usb", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-d", "uio:0x", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-d", "uio:0,", program, files[0], outputs[0][0]), "is no name of a device"),
        (("-x", "1", program), "there is no such option"),
        (("-t", "0.5", program), "-t: is no whole number of seconds"),
        (("-t", "99999999", program), "-t: is no whole number of seconds"),
    ):
        done = run_command(command, *words)
        assert done.returncode == 1
        assert text in done.stderr
        assert "Sanitizer" not in done.stderr
