"""A machine in the process of `opu-fuse hw sim`, as `sim_server.py` offers it."""

import mmap
import os
import socket

import numpy as np

from opu_fuse.devices.sim_messages import (
    MEMORY,
    REPLY,
    REQUEST,
    VERSION,
    Command,
    Status,
    receive,
)
from opu_fuse.errors import RunError

_SILENCE_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 1.0
_START = "start it with `opu-fuse hw sim SPEC PATH`"


class SimConnection:
    """Registers, interrupt and memory of one machine.

    path: of the socket; where: its name in messages; timeout: seconds that a machine segment may
    take, a process that is silent for longer hangs; address, bytes: of the machine's memory, as
    `devices.mapped.Memory` has them. Raises RunError where nobody listens, or another client has
    the machine.
    """

    def __init__(self, path: str, where: str, timeout: float = 10.0) -> None:
        self._where = where
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout + _SILENCE_SECONDS)
        try:
            self._connect(path)
            self.address, self.bytes = self._greet()
        except BaseException:
            self.close()
            raise

    def read(self, offset: int) -> int:
        return self._access(Command.READ, offset, 0)

    def write(self, offset: int, value: int) -> None:
        self._access(Command.WRITE, offset, value)

    def wait(self, seconds: float) -> bool:
        """Time passes in the simulation until its interrupt comes."""
        seconds = min(seconds, _LONGEST_WAIT_SECONDS)
        return bool(self._ask(Command.WAIT, 0, int(seconds * 1000))[1])

    def to_device(self) -> None:
        """Coherent."""

    def to_processor(self) -> None:
        """Coherent."""

    def close(self) -> None:
        """The machine is reset, and free for another client."""
        self._socket.close()

    def _connect(self, path: str) -> None:
        try:
            self._socket.connect(path)
        except OSError as error:
            what = f"no simulation can be reached ({error.strerror or error})"
            raise RunError(self._where, what, _START) from error

    def _greet(self) -> tuple[int, np.ndarray]:
        """Address and bytes of the memory."""
        self._send(Command.HELLO, 0, VERSION)
        first, descriptors, _, _ = self._received_with_descriptors()
        status, version = REPLY.unpack(first)
        if status == Status.TAKEN:
            raise RunError(self._where, "another client has the simulation", "close that one first")
        if status != Status.DONE:
            what = f"the simulation speaks version {version} of its messages, this is {VERSION}"
            raise RunError(self._where, what, "start it with this version of opu-fuse")
        address, size = MEMORY.unpack(self._received(MEMORY.size))
        (descriptor,) = descriptors
        try:
            return address, np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        finally:
            os.close(descriptor)

    def _received_with_descriptors(self) -> tuple[bytes, list[int], int, object]:
        try:
            received = socket.recv_fds(self._socket, REPLY.size, 1)
        except OSError:
            raise self._gone() from None
        if len(received[0]) < REPLY.size:
            raise self._gone()
        return received

    def _access(self, command: Command, offset: int, value: int) -> int:
        status, result = self._ask(command, offset, value)
        if status != Status.DONE:
            what = f"the machine refuses the {command.name.lower()} at {offset:#x} (SLVERR)"
            raise RunError(self._where, what, "see docs/registers.md for what is allowed when")
        return result

    def _ask(self, command: Command, offset: int, value: int) -> tuple[int, int]:
        self._send(command, offset, value)
        return REPLY.unpack(self._received(REPLY.size))

    def _send(self, command: Command, offset: int, value: int) -> None:
        try:
            self._socket.sendall(REQUEST.pack(command, offset, value))
        except OSError:
            raise self._gone() from None

    def _received(self, size: int) -> bytes:
        data = receive(self._socket, size)
        if data is None:
            raise self._gone()
        return data

    def _gone(self) -> RunError:
        what = "the simulation has ended, or does not answer"
        return RunError(self._where, what, f"look at its terminal, and {_START}")
