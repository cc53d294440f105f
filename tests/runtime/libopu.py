"""libopu by ctypes: program files opened and run as a C program does it."""

import ctypes
from enum import IntEnum

import numpy as np

from opu_fuse.sim.native.library import Words, library

ROOM = 8192
"""Bytes for a `struct opu_file` or `struct opu_session`, which are smaller."""
RANK = 8
DTYPES = dict(
    zip(
        (1, 2, 3, 4, 5, 6, 7),
        ("float32", "uint8", "int8", "uint16", "int16", "int32", "int64"),
        strict=True,
    )
) | {9: "bool", 11: "float64", 12: "uint32"}


class Status(IntEnum):
    """enum opu_status, as the header has it."""

    OK = 0
    BAD_ARGUMENT = 1
    BAD_PROGRAM = 4
    MACHINE_FAULT = 5
    DAMAGED = 6
    OTHER_VERSION = 7
    NO_SECTION = 8
    UNSUPPORTED = 9
    SMALL_MEMORY = 10
    NAN = 11
    OTHER_SPEC = 12
    NO_MACHINE = 13
    BUSY = 14
    TIMEOUT = 15
    BUS = 16
    BAD_INDEX = 17
    NO_FRAME = 18


class Head(ctypes.Structure):
    """The first members of struct opu_file, up to `machine`."""

    _fields_ = (("name", ctypes.c_char_p), ("refused", ctypes.c_char_p))


class PortOf(ctypes.Structure):
    """struct opu_port."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * RANK),
        ("elements", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
    )


class Sizes(ctypes.Structure):
    """Members of struct opu_file after `machine`."""

    _fields_ = (
        ("window_bytes", ctypes.c_uint64),
        ("work_bytes", ctypes.c_uint64),
        ("batch", ctypes.c_uint32),
        ("inputs", ctypes.c_uint32),
        ("outputs", ctypes.c_uint32),
        ("what", ctypes.c_char_p),
    )


class Backend(ctypes.Structure):
    """struct opu_backend."""

    _fields_ = tuple((n, ctypes.c_void_p) for n in ("attach", "run", "self", "submit", "wait"))


def aligned(size):
    """Zeros at a multiple of 64 bytes."""
    store = np.zeros(size + 64, np.uint8)
    return store[-store.ctypes.data % 64 :][:size]


class File:
    """An opened program file, or its three members; `status` says how opening ended."""

    def __init__(self, *data):
        self.data, self.call = data, library()
        self.memory = ctypes.create_string_buffer(ROOM)
        parts = [part for x in data for part in (x, ctypes.c_size_t(len(x)))]
        opening = self.call.opu_open if len(data) == 1 else self.call.opu_open_members
        self.status = opening(self.memory, *parts)
        self.head = Head.from_buffer(self.memory)
        self.machine = ctypes.sizeof(Head)
        self.sizes = Sizes.from_buffer(self.memory, self.machine + machine_bytes())

    @property
    def refused(self):
        return self.head.refused.decode()

    def port(self, kind, number):
        port = PortOf()
        call = getattr(self.call, f"opu_{kind}")
        assert call(self.memory, ctypes.c_uint32(number), ctypes.byref(port)) == Status.OK
        return port


def machine_bytes():
    """sizeof(struct opu_machine_config), padded for the uint64 that follows."""
    from opu_fuse.hw.rtlgen.c_runtime import machine_words
    from opu_fuse.hw.spec.load_spec import load_hw

    return -(-4 * len(machine_words(load_hw("opu-tiny"))) // 8) * 8


class Session:
    """A program on the native engine, or another back end."""

    def __init__(self, file, backend=None, window=None):
        self.file, self.call = file, file.call
        self.window = aligned(file.sizes.window_bytes) if window is None else window
        self.work = aligned(file.sizes.work_bytes)
        self.backend = native_backend(self) if backend is None else backend
        self.memory = ctypes.create_string_buffer(ROOM)
        self.status = self.init(self.window.size, self.work.size)

    def init(self, window_size, work_size, function="opu_session_init"):
        area = Words(data=self.window.ctypes.data, size=window_size)
        return self.call[function](
            self.memory,
            self.file.memory,
            ctypes.byref(self.backend),
            ctypes.byref(area),
            ctypes.c_void_p(self.work.ctypes.data),
            ctypes.c_size_t(work_size),
        )

    def run(self, inputs, images=1):
        """(status, outputs by name). inputs: arrays in the order of the ports."""
        arrays = [np.ascontiguousarray(array) for array in inputs]
        outputs = self._outputs(images)
        given, taken = _words(arrays), _words(outputs.values())
        status = self.call.opu_run(self.memory, given, taken, ctypes.c_size_t(images))
        return Status(status), outputs

    def submit(self, inputs, images=1):
        arrays = [np.ascontiguousarray(array) for array in inputs]
        return Status(self.call.opu_submit(self.memory, _words(arrays), ctypes.c_size_t(images)))

    def wait(self, images=1):
        """(status, outputs by name) of the frame that was submitted."""
        outputs = self._outputs(images)
        return Status(self.call.opu_wait(self.memory, _words(outputs.values()))), outputs

    def _outputs(self, images):
        ports = [self.file.port("output", n) for n in range(self.file.sizes.outputs)]
        return {p.name.decode(): self._array(p, images) for p in ports}

    @staticmethod
    def _array(port, images):
        shape = list(port.shape[: port.rank])
        if images > 1:
            shape = [images, *shape[1:]] if shape[:1] == [1] else [images, *shape]
        return np.zeros(shape, DTYPES[port.dtype])


def _words(arrays):
    """An array of struct opu_in or struct opu_out."""
    given = [Words(data=a.ctypes.data, size=a.nbytes) for a in arrays]
    return (Words * max(len(given), 1))(*given)


def native_backend(session):
    """A native engine for the file's machine."""
    call, file = session.call, session.file
    machine = ctypes.addressof(file.memory) + file.machine
    size = call.opu_native_size(machine)
    session.arena = aligned(size)
    engine = ctypes.c_void_p()
    assert call.opu_native_init(ctypes.byref(engine), machine, session.arena.ctypes.data, size) == 0
    backend = Backend()
    call.opu_native_backend(ctypes.byref(backend), engine)
    return backend
