"""A machine in simulation as a device for one client at a time: control registers and interrupt by
a Unix socket, memory by a file that the simulator and the client map.

Time passes in the machine with the accesses to its registers, and while the client waits.
"""

import errno
import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from opu_fuse.devices.linux import REGISTER_BYTES
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
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.ddr import require_dram
from opu_fuse.sim.rtl.process import RtlMachine
from opu_fuse.sim.runner import RtlOptions

ACCESS_CYCLES = 64
"""That an access to a register takes, so that a client may poll."""
_SLICE_CYCLES = 10_000
"""Simulated between two looks at the sockets."""
_SILENCE_SECONDS = 10.0
"""After which a client that has sent half a request is gone."""


class Machine(Protocol):
    """What is served: an `RtlMachine`.

    memory_file: what the machine sees from bus address 0 on.
    """

    @property
    def memory_file(self) -> Path: ...

    def read(self, offset: int, *, cycles: int) -> int:
        """RunError: SLVERR."""
        ...

    def write(self, offset: int, value: int, *, cycles: int) -> None: ...

    def wait(self, cycles: int) -> bool: ...

    def reset(self) -> None: ...


class SimServer:
    """The socket of a machine. path: of the socket, removed at the end of a `with`.

    Raises RunError where the path cannot be a socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = _bound(path)
        self._callers: list[socket.socket] = []  # that have not said HELLO
        self._client: socket.socket | None = None
        self._wait_until: float | None = None  # the client waits

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (*self._callers, self._listener, self._client):
            if connection is not None:
                connection.close()
        with suppress(OSError):
            self._path.unlink()

    def listen(self) -> None:
        """From now on clients are answered by `serve`."""
        self._listener.listen()

    def serve(self, machine: Machine) -> None:
        """Answer clients, for ever. Raises what the machine raises when the simulation fails."""
        while True:
            self.step(machine)

    def step(self, machine: Machine, patience: float | None = None) -> None:
        """Answer the next messages, or simulate a while for a client that waits. patience: seconds
        until it returns without a message; None for as long as it takes.

        A client that leaves does so before the next one is greeted.
        """
        watched = [self._listener, *self._callers, *filter(None, [self._client])]
        client, waits = self._client, self._wait_until is not None
        ready, _, _ = select.select(watched, [], [], 0 if waits else patience)
        if client is not None and client in ready:
            self._answer(client, machine)
        elif waits:
            self._simulate(machine)
        for caller in [c for c in self._callers if c in ready]:
            self._callers.remove(caller)
            self._greet(caller, machine)
        if self._listener in ready:
            self._callers.append(self._listener.accept()[0])
            self._callers[-1].settimeout(_SILENCE_SECONDS)

    def _greet(self, caller: socket.socket, machine: Machine) -> None:
        request = receive(caller, REQUEST.size)
        if request is None:
            caller.close()
            return
        command, _, version = REQUEST.unpack(request)
        status = Status.TAKEN if self._client is not None else Status.DONE
        if (command, version) != (Command.HELLO, VERSION):
            status = Status.OTHER_VERSION
        with suppress(OSError):
            if status is Status.DONE:
                _send_memory(caller, machine.memory_file)
                self._client = caller
                return
            caller.sendall(REPLY.pack(status, VERSION))
        caller.close()

    def _answer(self, client: socket.socket, machine: Machine) -> None:
        request = receive(client, REQUEST.size)
        if request is None or self._wait_until is not None:  # gone, or does not await its reply
            self._leave(machine)
            return
        command, offset, value = REQUEST.unpack(request)
        status, result = Status.DONE, 0
        if command == Command.WAIT:
            self._wait_until = time.monotonic() + value / 1000
            return
        try:
            if offset % 4 or offset >= REGISTER_BYTES:
                status = Status.REFUSED
            elif command == Command.READ:
                result = machine.read(offset, cycles=ACCESS_CYCLES)
            elif command == Command.WRITE:
                machine.write(offset, value, cycles=ACCESS_CYCLES)
            else:
                status = Status.REFUSED
        except RunError:
            status = Status.REFUSED
        self._reply(status, result, machine)

    def _simulate(self, machine: Machine) -> None:
        interrupt = machine.wait(_SLICE_CYCLES)
        if interrupt or time.monotonic() >= (self._wait_until or 0.0):
            self._wait_until = None
            self._reply(Status.DONE, int(interrupt), machine)

    def _reply(self, status: Status, value: int, machine: Machine) -> None:
        assert self._client is not None
        try:
            self._client.sendall(REPLY.pack(status, value))
        except OSError:
            self._leave(machine)

    def _leave(self, machine: Machine) -> None:
        """The next client finds a machine that does nothing."""
        assert self._client is not None
        self._client.close()
        self._client = self._wait_until = None
        machine.reset()


def simulated(hw: HwSpec, size: int, options: RtlOptions, *, fast: bool = False) -> RtlMachine:
    """A machine with `size` bytes of memory, to be served. fast: as of `RtlMachine`.

    Raises RunError for a machine that has no RTL, where a tool is missing, and for a memory that is
    too small.
    """
    if not hw.build:
        raise RunError(hw.name, "has no RTL (`build: false`)", "use another machine of `hw list`")
    if options.dram is not None:
        require_dram(options.dram, options.bytes_per_cycle, size)
    return RtlMachine(
        hw,
        np.zeros(size, np.uint8),
        latency=options.latency,
        bytes_per_cycle=options.bytes_per_cycle,
        dram=options.dram,
        waves=options.waves,
        fast=fast,
    )


def _bound(path: Path) -> socket.socket:
    """A socket of that name, which takes the place of one that nobody listens to any more."""
    if path.exists() and not path.is_socket():
        raise RunError(str(path), "exists and is no socket", "choose another path")
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and _is_left(path):
            path.unlink()
        ours.bind(str(path))
    except OSError as error:
        ours.close()
        what = f"the socket cannot be opened ({error.strerror or error})"
        help_ = "choose a path of at most 107 bytes in a folder that can be written"
        if error.errno == errno.EADDRINUSE:
            what, help_ = "another simulation listens there", "choose another path"
        raise RunError(str(path), what, help_) from error
    return ours


def _is_left(path: Path) -> bool:
    """Whether nobody listens to a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


def _send_memory(caller: socket.socket, file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        message = REPLY.pack(Status.DONE, VERSION) + MEMORY.pack(0, size)
        socket.send_fds(caller, [message], [descriptor])
    finally:
        os.close(descriptor)
