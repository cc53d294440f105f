"""A LiteX SoC with the machine, for a board or simulated: `python -m rtl_sim.litex.target --board
NAME --hw SPEC PROGRAM.opu`.

`sim` boots and prints. Any other name is a target of litex-boards: the command writes Verilog,
software, and what the BIOS loads (`litex_term --images=FOLDER/boot.json`); `--build` makes the
bitstream too.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from litex.soc.integration.builder import Builder

from opu_fuse import load_hw
from opu_fuse.errors import OpuFuseError, RunError, UserError
from opu_fuse.litex.core import OPU
from opu_fuse.program import Program
from opu_fuse.sim import ports
from opu_fuse.sim.array_files import read_inputs
from rtl_sim.litex import image, simulate
from rtl_sim.litex.boards import board_soc


def write_board(options: argparse.Namespace, program: Program, inputs: Any) -> None:
    """SoC, firmware, payload, and boot.json with the places of the last two."""
    folder = options.folder.resolve()
    # Makefiles of LiteX call python3 and meson from the PATH: those of this environment.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    soc = board_soc(options.board, load_hw(options.hw), folder)
    Builder(soc, output_dir=str(folder)).build(run=options.build)
    base = soc.bus.regions["main_ram"].origin
    files = {
        "payload.bin": (
            image.payload(options.program, program.bundle, inputs),
            image.PAYLOAD_OFFSET,
        ),
        "firmware.bin": (image.compile_firmware(folder), 0),  # the BIOS starts the last one
    }
    for name, (content, _) in files.items():
        (folder / name).write_bytes(content)
    places = {str(folder / name): hex(base + offset) for name, (_, offset) in files.items()}
    (folder / "boot.json").write_text(json.dumps(places, indent=2) + "\n")
    print(f"{folder / 'boot.json'}: for litex_term --images")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="of opu-fuse compile --host c")
    parser.add_argument("--board", default="sim", help="sim, or a target of litex-boards")
    parser.add_argument("--hw", required=True, metavar="SPEC", help="the machine")
    parser.add_argument("--input", action="append", metavar="NAME=X.npy", help="else seeded noise")
    parser.add_argument("--folder", type=Path, default=Path("out/litex"), help="of the build")
    parser.add_argument("--build", action="store_true", help="for a board: the bitstream too")
    options = parser.parse_args()
    try:
        program, spec = Program.load(options.program), load_hw(options.hw)
        if program.hw.spec_hash != spec.spec_hash:
            raise RunError(
                str(options.program),
                f"is for another machine than {spec.name}",
                f"compile it with --hw {options.hw}",
            )
        inputs = read_inputs(options.input) or ports.noise(program.bundle)
        if options.board == "sim":
            simulate.run(options.program, program.bundle, spec, inputs, options.folder)
        else:
            write_board(options, program, inputs)
    except OpuFuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
