"""Memory at the ports of fetch, load and store: latency, random stalls, the rules of the bus.

Every burst is held against AXI4 and the machine's promises: full beats, at most `max_burst` of
them, inside a 4 KB page and inside the memory window.

`ready` and `valid` of a side are the probabilities per cycle with which it raises its ready and
valid signals, `latency` the cycles from a complete request to its first answer. A bench calls
`drive` at the start of every cycle and `observe` once the machine's outputs have settled
(`cycles.py`).
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

PAGE = 4096
"""Bytes of a page, whose border no AXI burst may cross."""
MOST_BEATS = 1024
"""Beats of write data that are taken before their address."""


@dataclass(kw_only=True)
class Rules:
    """What bursts must keep to.

    bus_bytes: bytes of a beat;
    max_burst: most beats of a burst;
    outstanding: most open bursts;
    base, limit: bus address and bytes of the memory window.
    """

    bus_bytes: int
    max_burst: int
    outstanding: int
    base: int
    limit: int

    def check(self, address, beats):
        """Byte offset of a burst in the window. AssertionError where it breaks a rule."""
        size = beats * self.bus_bytes
        assert 1 <= beats <= min(self.max_burst, 256), f"burst of {beats} beats"
        assert address % self.bus_bytes == 0, f"burst at {address:#x}"
        assert address % PAGE + size <= PAGE, f"burst {address:#x}+{size} crosses a page"
        offset = address - self.base
        inside = offset >= 0 and offset + size <= self.limit
        assert inside, f"burst {offset:#x}+{size} leaves the window"
        return offset


@dataclass(kw_only=True)
class Reads:
    """Read side.

    data: the window's bytes;
    bad: byte offsets whose beats answer with an error;
    bursts: (offset, beats) of every burst so far;
    open: (offset, beats left, cycle of the first answer) of those that are not answered;
    now: cycle.
    """

    rules: Rules
    data: np.ndarray
    rng: np.random.Generator
    ready: float = 0.7
    valid: float = 0.7
    latency: int = 20
    bad: range = range(0)
    bursts: list = field(default_factory=list)
    open: deque = field(default_factory=deque)
    now: int = 0

    def drive(self, dut):
        """Set the inputs of the next cycle."""
        self.now += 1
        self.can_take = self.rng.random() < self.ready and len(self.open) < self.rules.outstanding
        dut.ar_ready_i.value = int(self.can_take)
        self.sent = bool(
            self.open and self.open[0][2] <= self.now and self.rng.random() < self.valid
        )
        dut.r_valid_i.value = int(self.sent)
        if hasattr(dut, "r_end_i"):  # a port of load alone
            dut.r_end_i.value = int(self.sent and self.open[0][1] == 1)
        if self.sent:
            offset, *_ = self.open[0]
            size = self.rules.bus_bytes
            beat = self.data[offset : offset + size].tobytes()
            dut.r_data_i.value = int.from_bytes(beat, "little")
            dut.r_error_i.value = int(offset in self.bad)

    def observe(self, dut):
        """Take the handshakes of this cycle."""
        if self.sent:
            offset, left, due = self.open.popleft()
            if left > 1:
                self.open.appendleft((offset + self.rules.bus_bytes, left - 1, due))
        if self.can_take and int(dut.ar_valid_o.value):
            address, beats = int(dut.ar_addr_o.value), int(dut.ar_beats_o.value)
            offset = self.rules.check(address, beats)
            self.bursts.append((offset, beats))
            self.open.append((offset, beats, self.now + self.latency))


@dataclass(kw_only=True)
class Writes:
    """Write side: data may come before, with or after their address.

    data: the window's bytes;
    bad: byte offsets whose bursts answer with an error;
    bursts: (offset, beats) of every burst so far;
    beats: (bytes, strobes, last) of data without an address;
    addressed: (offset, beats) of bursts without all of their data;
    answers: (cycle, whether it is an error) of responses that are due;
    now: cycle.
    """

    rules: Rules
    data: np.ndarray
    rng: np.random.Generator
    ready: float = 0.7
    valid: float = 0.7
    latency: int = 20
    bad: range = range(0)
    bursts: list = field(default_factory=list)
    beats: deque = field(default_factory=deque)
    addressed: deque = field(default_factory=deque)
    answers: deque = field(default_factory=deque)
    now: int = 0

    def drive(self, dut):
        self.now += 1
        self.take_address = self.rng.random() < self.ready
        self.take_data = self.rng.random() < self.ready and len(self.beats) < MOST_BEATS
        dut.aw_ready_i.value = int(self.take_address)
        dut.w_ready_i.value = int(self.take_data)
        due = bool(self.answers and self.answers[0][0] <= self.now)
        self.sent = due and self.rng.random() < self.valid
        dut.b_valid_i.value = int(self.sent)
        dut.b_error_i.value = int(self.sent and self.answers[0][1])

    def observe(self, dut):
        if self.sent:
            self.answers.popleft()
        if self.take_address and int(dut.aw_valid_o.value):
            address, beats = int(dut.aw_addr_o.value), int(dut.aw_beats_o.value)
            offset = self.rules.check(address, beats)
            self.bursts.append((offset, beats))
            self.addressed.append((offset, beats))
            open_bursts = len(self.addressed) + len(self.answers)
            assert open_bursts <= self.rules.outstanding, f"{open_bursts} open bursts"
        if self.take_data and int(dut.w_valid_o.value):
            size = self.rules.bus_bytes
            beat = int(dut.w_data_o.value).to_bytes(size, "little")
            strobes = np.array([bool(int(dut.w_strobe_o.value) >> n & 1) for n in range(size)])
            data = np.frombuffer(beat, np.uint8)
            self.beats.append((data, strobes, int(dut.w_last_o.value)))
        self._pair()

    def _pair(self):
        """Write the bursts whose address and data have all arrived."""
        size = self.rules.bus_bytes
        while self.addressed and len(self.beats) >= self.addressed[0][1]:
            offset, beats = self.addressed.popleft()
            for n in range(beats):
                data, strobes, last = self.beats.popleft()
                assert last == (n == beats - 1), "wlast does not mark the last beat"
                target = self.data[offset + n * size : offset + (n + 1) * size]
                target[strobes] = data[strobes]
            self.answers.append((self.now + self.latency, offset in self.bad))
