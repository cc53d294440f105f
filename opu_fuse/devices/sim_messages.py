"""Messages between a machine in simulation (`sim_server.py`) and its client (`sim_client.py`,
`runtime/hardware/opu_sim.c`): 32-bit little-endian words over a Unix socket.

A client sends a request of three words and gets a reply of two. The first request is `HELLO`; its
reply is followed by `MEMORY` and carries a descriptor of the machine's memory, to be mapped.
"""

import socket
import struct
from enum import IntEnum

VERSION = 1
REQUEST = struct.Struct("<III")
"""Command, offset of a register, value."""
REPLY = struct.Struct("<II")
"""Status, value."""
MEMORY = struct.Struct("<QQ")
"""Address on the machine's bus, bytes."""


class Command(IntEnum):
    """What a client asks for."""

    HELLO = 1
    """value: VERSION."""
    READ = 2
    """A register; the reply has its value."""
    WRITE = 3
    """value: of the register."""
    WAIT = 4
    """value: milliseconds. Time passes in the machine until its interrupt is high, or until so much
    real time has passed; the reply's value is 1 when it is high.
    """


class Status(IntEnum):
    """What a reply says."""

    DONE = 0
    REFUSED = 1
    """The machine answers the access with SLVERR, or there is no such command."""
    TAKEN = 2
    """Another client has the machine."""
    OTHER_VERSION = 3


def receive(connection: socket.socket, size: int) -> bytes | None:
    """So many bytes; None when the other side has gone, or is silent in the middle of them."""
    data = b""
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except OSError:
            return None
        if not piece:
            return None
        data += piece
    return data
