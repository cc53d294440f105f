"""What the firmware of a LiteX SoC prints about a run, as results."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from litex.tools.litex_term import crc16

from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import RunError

_OUTPUT = re.compile(r"opu: output (\d+) ((?:[0-9a-f]{2})*) ([0-9a-f]{4})")
_CYCLES = re.compile(r"opu: (\d+) cycles: machine (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one run. outputs: (images, …) of each port; machine: the cycles of machine segments."""

    outputs: dict[str, np.ndarray]
    cycles: int
    machine: int


def outcome(lines: Iterable[str], bundle: Bundle, images: int) -> Outcome | None:
    """Reads lines up to the last one of a run; None where something of them is lost or damaged.

    RunError where the firmware or the machine refuses the program.
    """
    outputs: dict[str, np.ndarray] = {}
    cycles: tuple[int, int] | None = None
    refused = ""
    for line in lines:
        if match := _OUTPUT.fullmatch(line):
            number, content = int(match[1]), bytes.fromhex(match[2])
            if crc16(content) ^ number == int(match[3], 16):
                port = bundle.outputs[number]
                array = np.frombuffer(content, np.dtype(port.dtype))
                outputs[port.name] = array.reshape(images, *port.shape[1:])
        elif match := _CYCLES.match(line):
            cycles = int(match[1]), int(match[2])
        elif line.startswith(("opu: error", "opu: segment")):
            refused = line
        elif line == "opu: failed":
            raise RunError("board", refused or "the program failed", "look at docs/bring-up.md")
        elif line == "opu: done":
            break
    if cycles is None or len(outputs) < len(bundle.outputs):
        return None
    return Outcome(outputs=outputs, cycles=cycles[0], machine=cycles[1])
