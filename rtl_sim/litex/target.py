"""A LiteX SoC with the machine, for a board or simulated: `python -m rtl_sim.litex.target --board
NAME --hw SPEC [PROGRAM.opu]`.

`sim` boots and prints. Any other name is a target of litex-boards: the command writes Verilog,
constraints, the script of the board's tools, software, and what the BIOS loads (`litex_term
--images=FOLDER/boot.json`): the firmware, and a program with inputs where one is given, else
`rtl_sim.litex.host` sends it. `--build` makes the bitstream too.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from litex.soc.integration.builder import Builder

from opu_fuse import load_hw
from opu_fuse.errors import OpuFuseError, RunError, UserError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.program import Program
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs
from rtl_sim import pnr
from rtl_sim.litex import image, project, simulate
from rtl_sim.litex.bitstream import bitstream
from rtl_sim.litex.boards import BOARDS, Board, board_soc


class Loaded(NamedTuple):
    """A program file and its inputs."""

    file: Path
    program: Program
    inputs: Mapping[str, np.ndarray]


def write_board(options: argparse.Namespace, spec: HwSpec, loaded: Loaded | None) -> Any:
    """SoC, firmware, payload, and boot.json with the addresses of the last two; the SoC."""
    folder = options.folder.resolve()
    # Makefiles of LiteX call python3 and meson from the PATH: those of this environment.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    soc = board_soc(options.board, spec, folder, toolchain=options.toolchain)
    builder = Builder(soc, output_dir=str(folder), csr_json=str(folder / "csr.json"))
    run = options.build and not _own_tools(options.board)
    with contextlib.nullcontext() if run else project.written(soc, folder / "gateware"):
        builder.build(run=run)
    base = soc.bus.regions["main_ram"].origin
    files: dict[str, tuple[bytes, int]] = {}
    if loaded is not None:
        payload = image.payload(loaded.file, loaded.program.bundle, loaded.inputs)
        files["payload.bin"] = bytes(payload), image.PAYLOAD_OFFSET
    files["firmware.bin"] = image.compile_firmware(folder), 0  # the BIOS starts the last one
    for name, (content, _) in files.items():
        (folder / name).write_bytes(content)
    addresses = {str(folder / name): hex(base + offset) for name, (_, offset) in files.items()}
    (folder / "boot.json").write_text(json.dumps(addresses, indent=2) + "\n")
    print(f"{folder / 'boot.json'}: for litex_term --images")
    return soc


def _own_tools(board: str) -> bool:
    return bool(BOARDS.get(board, Board()).nextpnr)


def build_bitstream(options: argparse.Namespace, soc: Any) -> int:
    """1 where the routed design does not hold the clock that its PLL generates."""
    made = bitstream(options.board, soc, options.folder.resolve(), range(1, options.seeds + 1))
    clock = soc.sys_clk_freq / 1e6
    pnr.show(f"the board holds {made.run.mhz:.1f} MHz, its clock is {clock:g} MHz", made.run)
    print(made.file)
    return int(made.run.mhz < clock)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, nargs="?", help="of opu-fuse compile --host c")
    parser.add_argument("--board", default="sim", help="sim, or a target of litex-boards")
    parser.add_argument("--hw", required=True, metavar="SPEC", help="the machine")
    parser.add_argument(
        "--toolchain", default="", help="of the board, as LiteX has them: vivado, openxc7, …"
    )
    parser.add_argument("--input", action="append", metavar="NAME=X.npy", help="else seeded noise")
    parser.add_argument("--folder", type=Path, default=Path("out/litex"), help="of the build")
    parser.add_argument("--build", action="store_true", help="for a board: the bitstream too")
    parser.add_argument("--seeds", type=int, default=1, help="ECP5: the fastest run counts")
    options = parser.parse_args()
    try:
        return _run(options)
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    spec = load_hw(options.hw)
    loaded = None if options.program is None else _loaded(options, spec)
    if options.board == "sim":
        if loaded is None:
            raise UserError("--board sim", "has no program", "name a .opu file")
        simulate.run(loaded.file, loaded.program.bundle, spec, loaded.inputs, options.folder)
        return 0
    if options.build and _own_tools(options.board):
        pnr.require_router()
        return build_bitstream(options, write_board(options, spec, loaded))
    write_board(options, spec, loaded)
    return 0


def _loaded(options: argparse.Namespace, spec: HwSpec) -> Loaded:
    program = Program.load(options.program)
    if program.hw.spec_hash != spec.spec_hash:
        raise RunError(
            str(options.program),
            f"is for another machine than {spec.name}",
            f"compile it with --hw {options.hw}",
        )
    inputs = read_inputs(options.input) or ports.noise(program.bundle)
    return Loaded(options.program, program, inputs)


if __name__ == "__main__":
    sys.exit(main())
