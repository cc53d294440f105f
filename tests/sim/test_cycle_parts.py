"""Parts of the cycle engine against slow models that go cycle by cycle, or beat by beat."""

from collections import deque
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.hw.depthwise_window import ring_columns, window_timing
from opu_fuse.sim.cycle.burst_queue import BurstQueue
from opu_fuse.sim.cycle.bursts import transfer
from opu_fuse.sim.cycle.memory import Memory


@given(
    at=st.integers(0, 63),
    run=st.integers(1, 40),
    rows=st.integers(1, 5),
    row_pitch=st.integers(0, 50),
    blocks=st.integers(1, 3),
    block_pitch=st.integers(0, 200),
    longest=st.sampled_from((1, 8, 16, 64)),
)
def test_bursts_are_the_beats_in_order_cut_at_pages(
    at, run, rows, row_pitch, blocks, block_pitch, longest
):
    shape = {"run": run, "rows": rows, "row_pitch": row_pitch}
    found = transfer(
        at=at, **shape, blocks=blocks, block_pitch=block_pitch, page=64, longest=longest
    )
    beats = [
        at + b * block_pitch + r * row_pitch + i
        for b in range(blocks)
        for r in range(rows)
        for i in range(run)
    ]
    left = deque(beats)
    for size in (burst.beats for burst in found.bursts):
        burst = [left.popleft() for _ in range(size)]
        assert burst == list(range(burst[0], burst[0] + size)), "beats that follow each other"
        assert size <= longest
        assert burst[0] // 64 == burst[-1] // 64, "inside a page"
        joins = left and left[0] == burst[-1] + 1 and left[0] % 64
        assert not joins or size == longest, "no burst ends too early"
    assert not left
    assert found.bursts[-1].last == rows * blocks - 1
    needs = [burst.needs for burst in found.bursts]
    assert needs == sorted(needs)


def test_runs_that_continue_each_other_are_one_stretch():
    rows = transfer(
        at=0, run=4, rows=4, row_pitch=4, blocks=2, block_pitch=100, page=512, longest=64
    )
    assert [(burst.beats, burst.needs, burst.last) for burst in rows.bursts] == [
        (16, 3, 3),
        (16, 7, 7),
    ]


def walked(shapes, wanted, accepts, longest):
    """`opu_walk`, a cycle at a time: cycles in which shapes start, and bursts go with their beats.
    shapes: (runs as places, beats of a run); wanted: cycle from which each may start.
    """
    starts, bursts = [], []
    left = deque(zip(shapes, wanted, strict=True))
    runs, size, end = deque(), 0, None  # of the shape under way, and where its last run ended
    at = length = cycle = 0
    final = False  # nothing of this shape comes behind the stretch
    while left or runs or length:
        cap = min(longest, 64 - at % 64)
        offered = bool(runs)
        continues_accumulation = offered and not final and runs[0] == end
        valid = length and (length >= cap or final or (offered and not continues_accumulation))
        cut = valid and accepts[cycle % len(accepts)]
        rest = length > cap
        if cut:
            bursts.append((cycle, min(length, cap)))
        start = not offered and left and cycle >= left[0][1]
        if cut and rest:
            at, length = at + cap, length - cap
        elif cut or not length:
            length = 0
            if offered:
                at = runs.popleft()
                end, length, final = at + size, size, not runs
        elif continues_accumulation:
            end = runs.popleft() + size
            length, final = length + size, not runs
        if start:
            (places, size_next), _ = left.popleft()
            runs, size = deque(places), size_next
            starts.append(cycle)
        cycle += 1
    return starts, bursts


@st.composite
def shapes(draw):
    number = st.integers(1, 6)
    return {
        "at": draw(st.integers(0, 63)), "run": draw(st.integers(1, 30)),
        "rows": draw(number), "row_pitch": draw(st.integers(1, 30)),
        "blocks": draw(st.integers(1, 3)), "block_pitch": draw(st.integers(1, 90)),
    }  # fmt: skip


@given(
    st.lists(
        st.tuples(shapes(), st.booleans(), st.integers(0, 40), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.booleans(), min_size=1, max_size=30).filter(any),
    st.sampled_from((1, 4, 16, 64)),
)
def test_bursts_go_in_the_cycles_in_which_the_address_walk_has_them(drawn, accepts, longest):
    """A burst that leaves a rest keeps a run from joining the stretch for a cycle."""
    works, runs, wanted = deque(), [], []
    for shape, joined, at, late in drawn:
        # Every row goes on where the one before ends.
        s = shape | {"row_pitch": shape["run"]} if joined else shape
        works.append((transfer(**s, page=64, longest=longest), at, late))
        rows = (b * s["block_pitch"] for b in range(s["blocks"]))
        places = [s["at"] + row + r * s["row_pitch"] for row in rows for r in range(s["rows"])]
        runs.append((places, s["run"]))
        wanted.append(at)
    expected = walked(runs, wanted, accepts, longest)
    unit, starts, bursts = BurstQueue(), [], []
    while works or unit.wanted < inf:
        waits = works and works[0][2] and unit.wanted < inf  # its start is told late
        if works and not waits and (ready := unit.free) is not None:
            work, at, _ = works.popleft()
            at = max([at, ready, *(s + 1 for s in starts[-1:])])
            starts.append(at)
            unit.run(len(starts), work, at)
            continue
        taken = unit.wanted
        while taken < inf and not accepts[taken % len(accepts)]:
            taken += 1
        if unit.due <= taken:
            unit.settle()
        else:
            bursts.append((taken, unit.take(int(taken))[0]))
    assert (starts, bursts) == expected


def ring(out_rows, out_cols, kernel, stride_x, dilation_x, parts, part_cycles, row_words, columns):
    """`opu_compute_window` and the fills of `opu_compute_rows`, a cycle at a time."""
    rows, cols = kernel
    paired = dilation_x == 1 and stride_x <= cols
    run = cols + (out_cols - 1) * stride_x if paired else cols
    runs = out_rows if paired else out_rows * out_cols
    ready = cycle = fill = block = 0
    reading = waiting = walking = held = False
    line = left = runs_left = part = pixel = steps = 0
    begun = read = stepped = 0
    while block < len(parts) or reading or waiting or walking:
        take = block < len(parts) and not (reading or waiting or held) and fill <= 1
        fire = reading and (line or ready <= columns - 2)
        step = walking and ready >= cols
        pushed = dropped = 0
        if fire:
            read, line = cycle, line + 1
            if line == rows:
                line, pushed = 0, 1 + (paired and left > 1)
                left -= pushed
                if left <= 0:
                    left, runs_left = run, runs_left - 1
        walk_ends = False
        if step:
            stepped, part = cycle, part + 1
            if part == steps:
                part, pixel = 0, pixel + 1
                ends_row = not paired or pixel % out_cols == 0
                dropped = cols if ends_row else stride_x
                walk_ends = pixel == out_rows * out_cols
        begins = waiting and (not walking or walk_ends)
        fill = max(fill - 1, 0)
        if walk_ends:
            walking = False
        if begins:
            begun, walking, waiting, held = cycle, True, False, False
            pixel, steps = 0, parts[block - 1] * part_cycles
            fill = parts[block] * row_words if block < len(parts) else 0
        reading = reading and runs_left > 0
        if take:
            block, reading, waiting, held = block + 1, True, True, True
            left, runs_left, line = run, runs, 0
        ready += pushed - dropped
        cycle += 1
    return begun, read, stepped


@given(
    out_rows=st.integers(1, 4),
    out_cols=st.integers(1, 6),
    rows=st.integers(1, 4),
    cols=st.integers(1, 4),
    stride_x=st.integers(1, 5),
    dilation_x=st.integers(1, 2),
    parts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    part_cycles=st.integers(1, 2),
    row_words=st.integers(1, 8),
)
def test_windows_are_walked_as_the_ring_is_filled_and_emptied(
    out_rows, out_cols, rows, cols, stride_x, dilation_x, parts, part_cycles, row_words
):
    columns = ring_columns(4)
    found = window_timing(
        out_rows=out_rows,
        out_cols=out_cols,
        kernel=(rows, cols),
        stride_x=stride_x,
        dilation_x=dilation_x,
        parts=tuple(parts),
        row_words=row_words,
        columns=columns,
        part_cycles=part_cycles,
    )
    kernel, times = (rows, cols), (part_cycles, row_words)
    expected = ring(out_rows, out_cols, kernel, stride_x, dilation_x, parts, *times, columns)
    assert (found.begun, found.read, found.stepped) == expected


def cycle_by_cycle(rate, beat, reads, writes):
    """`opu_axi_memory`: the cycle behind the last beat of every burst. The data of a write burst
    are there a cycle after its first grant may come.
    """
    ends, queues = ([], []), (deque(map(list, reads)), deque(map(list, writes)))
    budget = cycle = 0
    free = [0, 0]  # cycle of the next grant
    write_first = False
    while any(queues):
        budget = min(budget + rate, beat + rate)
        wants = [bool(q) and max(q[0][0], at) <= cycle for q, at in zip(queues, free, strict=True)]
        for side in (1, 0, 1) if write_first else (0, 1):
            if not wants[side] or budget < beat:
                continue
            wants[side] = False
            budget -= beat
            write_first = side == 0
            burst = queues[side][0]
            free[side] = max(cycle, burst[0] + side) + 1
            burst[1] -= 1
            if not burst[1]:
                queues[side].popleft()
                ends[side].append(free[side])
        cycle += 1
    return ends


BURSTS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 16)), max_size=5).map(sorted)


@given(rate=st.sampled_from((1, 2, 3, 8, 11, 12, 15, 24)), reads=BURSTS, writes=BURSTS)
def test_the_memory_grants_beats_as_one_does_that_looks_every_cycle(rate, reads, writes):
    bus = 8
    memory = Memory(rate, bus)
    for n, (at, beats) in enumerate(reads):
        memory.reads.add(at, at, beats, n)
    for n, (at, beats) in enumerate(writes):
        memory.writes.add(at, at + 1, beats, n)
    memory.plan()
    ends = ([], [])
    while memory.next < inf:
        for side, tag in enumerate(memory.move()):
            if tag is not None:
                assert tag == len(ends[side])
                ends[side].append((memory.reads, memory.writes)[side].end)
    assert ends == cycle_by_cycle(rate, bus, reads, writes)
