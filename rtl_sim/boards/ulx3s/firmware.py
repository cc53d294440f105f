"""The firmware of the board, compiled with the real driver, as files for `ulx3s_cpu.sv`."""

from pathlib import Path

from rtl_sim.soc.firmware import compiled

HERE = Path(__file__).parent
LANES = 4


def firmware(folder: Path) -> int:
    """Writes firmware0.hex … firmware3.hex, the bytes of its words; returns how many words.

    Raises RunError when the compiler is missing, InternalError when it refuses.
    """
    code = compiled(folder, HERE, march="rv32i")
    for lane in range(LANES):
        text = "".join(f"{byte:02x}\n" for byte in code[lane::LANES])
        (folder / f"firmware{lane}.hex").write_text(text, encoding="utf-8")
    return len(code) // LANES
