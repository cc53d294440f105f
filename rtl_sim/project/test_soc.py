"""`pytest` compiles the network, builds the simulator and runs the tests of `bench_soc.py`."""

from pathlib import Path

import opu_fuse
from opu_fuse.cosim import simulate

HERE = Path(__file__).parent
MACHINE = "@machine@"  # name, or path of a YAML file


def test_soc(tmp_path):
    hw = opu_fuse.load_hw(MACHINE)
    program = opu_fuse.compile(HERE / "network.onnx", hw)
    program.save(tmp_path / "network.opu")
    simulate(
        hw,
        top="soc",
        sources=[HERE / "soc_share.sv", HERE / "soc.sv"],
        module="bench_soc",
        python_path=[HERE],
        folder=tmp_path,
        environment={"PROGRAM": str(tmp_path / "network.opu")},
        waves=None,  # HERE / "soc.fst" writes them
    )
