"""Memory at the ports of fetch, load and store: latency, random stalls, the rules of the bus.

Every burst is held against AXI4 and the machine's promises: full beats, at most MAX_BURST of them,
inside a 4 KB page and inside what the bench allows.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

PAGE = 4096


@dataclass(kw_only=True)
class Rules:
    """bus_bytes, max_burst, outstanding of the machine; base, limit: bus address and bytes of the
    window."""

    bus_bytes: int
    max_burst: int
    outstanding: int
    base: int
    limit: int

    def check(self, address, beats):
        """Offset of a burst that keeps the rules."""
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
    """Read side. data: the window's bytes; bad: offsets that answer with an error."""

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
        """Inputs of this cycle."""
        self.now += 1
        self.can_take = self.rng.random() < self.ready and len(self.open) < self.rules.outstanding
        dut.ar_ready_i.value = int(self.can_take)
        self.sent = bool(
            self.open and self.open[0][2] <= self.now and self.rng.random() < self.valid
        )
        dut.r_valid_i.value = int(self.sent)
        if self.sent:
            offset, left, _ = self.open[0]
            size = self.rules.bus_bytes
            beat = self.data[offset : offset + size].tobytes()
            dut.r_data_i.value = int.from_bytes(beat, "little")
            dut.r_error_i.value = int(offset in self.bad)
            if hasattr(dut, "r_last_i"):
                dut.r_last_i.value = int(left == 1)

    def observe(self, dut):
        """After the outputs have settled."""
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

    bad: offsets whose burst answers with an error.
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
        self.take_data = self.rng.random() < self.ready and len(self.beats) < 1024
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
        """Write the bursts whose address and data are all here."""
        size = self.rules.bus_bytes
        while self.addressed and len(self.beats) >= self.addressed[0][1]:
            offset, beats = self.addressed.popleft()
            for n in range(beats):
                data, strobes, last = self.beats.popleft()
                assert last == (n == beats - 1), "wlast does not mark the last beat"
                target = self.data[offset + n * size : offset + (n + 1) * size]
                target[strobes] = data[strobes]
            self.answers.append((self.now + self.latency, offset in self.bad))
