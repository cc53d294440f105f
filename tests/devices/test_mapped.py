"""A machine behind registers and shared memory runs programs with the functional engine's bits."""

from collections.abc import Callable

import numpy as np
import pytest

from opu_fuse.devices.control import Control
from opu_fuse.devices.mapped import MappedDevice
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.program import Program
from opu_fuse.zoo.builder import Net
from tests.devices.register_model import CYCLES, MachineModel, noise


@pytest.fixture(scope="module")
def program() -> Program:
    """Machine, host and machine again."""
    net = Net("between", seed=3)
    x = net.relu(net.conv(net.input("x", (1, 5, 6, 6)), "one", out=6, kernel=3), "relu")
    y = net._unary(x, "Softmax", "host", x.moments)
    model = net.finish(net.conv(y, "two", out=4, kernel=1), other=x)
    hw = load_hw("opu-tiny")
    return Program(bundle=compile_model(model, hw, Options()).bundle, hw=hw)


def _device(
    model: MachineModel, *, interrupt: "Interrupt | None" = None, timeout: float = 10.0
) -> MappedDevice:
    return MappedDevice(Control(model, "board", interrupt), model, "board", timeout=timeout)


class Interrupt:
    """Comes at once. waits: how often it was waited for."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.waits, self._then = 0, then

    def wait(self, seconds: float) -> bool:
        del seconds
        self.waits += 1
        self._then()
        return True


def test_a_program_with_host_segments_has_the_functional_engines_bits(program: Program) -> None:
    model = MachineModel(program.hw)
    with _device(model) as device:
        for seed in (1, 2):
            inputs = noise(program.bundle, seed)
            expected, result = program.run(inputs), device.run(program, inputs)
            assert expected.outputs.keys() == result.outputs.keys()
            for name, array in expected.outputs.items():
                assert np.array_equal(result.outputs[name], array), name
            assert result.engine == "board"
    machine_segments = sum(hasattr(s, "words") for s in program.bundle.segments)
    assert machine_segments == 2
    assert model.synced == ["device", "processor"] * machine_segments * 2


def test_counters_are_those_of_the_machine(program: Program) -> None:
    model = MachineModel(program.hw)
    result = _device(model).run(program, noise(program.bundle))
    assert result.counters["cycles"] == 2 * CYCLES  # two segments


def test_a_program_is_loaded_when_another_one_ran(program: Program) -> None:
    model = MachineModel(program.hw)
    device, other = _device(model), Program(bundle=program.bundle, hw=program.hw)
    device.run(program, noise(program.bundle))
    loads = [value for name, value in model.log if name == "WINDOW_SIZE_LO"]
    device.run(other, noise(program.bundle))  # the same bundle
    assert loads == [value for name, value in model.log if name == "WINDOW_SIZE_LO"]
    assert loads == [program.bundle.window_bytes]


def test_the_window_and_its_interrupts_are_set_before_the_start(program: Program) -> None:
    model = MachineModel(program.hw)
    model.address = 0x3_7000_0000
    _device(model).run(program, noise(program.bundle))
    log = dict(model.log[: [name for name, _ in model.log].index("CTRL")])
    assert (log["WINDOW_BASE_LO"], log["WINDOW_BASE_HI"]) == (0x7000_0000, 3)
    assert log["IRQ_ENABLE"] == 0


def test_an_interrupt_ends_the_wait(program: Program) -> None:
    model = MachineModel(program.hw, hangs=True)
    interrupt = Interrupt(model.advance)
    inputs = noise(program.bundle)
    result = _device(model, interrupt=interrupt).run(program, inputs)
    assert interrupt.waits == 2
    assert dict(model.log)["IRQ_ENABLE"] != 0
    assert np.array_equal(result.outputs["other"], program.run(inputs).outputs["other"])


@pytest.mark.parametrize(
    ("register", "value", "said"),
    [
        ("ID", 0xDEAD_BEEF, "ID is 0xdeadbeef, not 0x4f505546: no machine answers; look at base"),
        ("VERSION", 0x0002_0000, "has register map 2, this is for 1; build its RTL again"),
        ("SPEC_HASH_LO", 7, r"was built for spec .*, opu-tiny is .*; build its RTL"),
    ],
)
def test_another_machine_is_named(program: Program, register: str, value: int, said: str) -> None:
    model = MachineModel(program.hw)
    model.set(register, value)
    with pytest.raises(RunError, match=f"board: {said}"):
        _device(model).run(program, noise(program.bundle))
    assert not model.log, "nothing is written to what is no machine of ours"


def test_a_machine_that_stops_is_explained(program: Program) -> None:
    model = MachineModel(program.hw)
    model.faults = True
    with pytest.raises(RunError, match=r"segment 0: the machine stopped with buffer .* word 3"):
        _device(model).run(program, noise(program.bundle))


def test_a_program_that_does_not_end_is_stopped(program: Program) -> None:
    model = MachineModel(program.hw, hangs=True)
    with pytest.raises(RunError, match=r"still runs after 0.01 s \(STATUS 0x1\); allow it more"):
        _device(model, timeout=0.01).run(program, noise(program.bundle))
    assert ("CTRL", 1 << 1) in model.log


def test_a_memory_that_does_not_answer_is_aborted(program: Program) -> None:
    model = MachineModel(program.hw, silent=True)
    with pytest.raises(RunError, match=r"still runs .* the memory does not answer"):
        _device(model, timeout=0.01).run(program, noise(program.bundle))
    assert model.log[-1] == ("CTRL", 1 << 4)


def test_too_little_memory_and_an_address_inside_a_page_are_refused(program: Program) -> None:
    model = MachineModel(program.hw)
    model.memory = model.memory[: program.bundle.window_bytes - 1]
    with pytest.raises(RunError, match=r"the program needs .* bytes of memory, there are"):
        _device(model).run(program, noise(program.bundle))
    model = MachineModel(program.hw)
    model.address += 64
    with pytest.raises(RunError, match=r"begins at 0x70000040; use an address .* multiple of 4096"):
        _device(model).run(program, noise(program.bundle))
