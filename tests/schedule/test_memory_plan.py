"""Live tensors never share bytes; dead ones give theirs away."""

from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.schedule.memory_plan import ALIGNMENT, LiveRange, plan_memory


@st.composite
def live_ranges(draw):
    count = draw(st.integers(1, 30))
    ranges = []
    for key in range(count):
        first = draw(st.integers(-1, 20))
        last = draw(st.integers(first, 22))
        ranges.append(
            LiveRange(key=key, size_bytes=draw(st.integers(1, 5000)), first=first, last=last)
        )
    return ranges


@given(live_ranges(), st.booleans())
def test_tensors_alive_together_never_overlap(ranges, reuse):
    plan = plan_memory(ranges, reuse=reuse)
    for a in ranges:
        assert plan.offsets[a.key] % ALIGNMENT == 0
        for b in ranges:
            together = not reuse or (a.first <= b.last and b.first <= a.last)
            if a.key < b.key and together:
                a0, b0 = plan.offsets[a.key], plan.offsets[b.key]
                assert a0 + a.size_bytes <= b0 or b0 + b.size_bytes <= a0


@given(live_ranges())
def test_the_lower_bound_is_the_most_that_lives_at_one_step(ranges):
    at_steps = (
        sum(-(-r.size_bytes // ALIGNMENT) * ALIGNMENT for r in ranges if r.first <= step <= r.last)
        for step in range(-1, 23)
    )
    assert plan_memory(ranges).lower_bound_bytes == max(at_steps)


def test_nothing_takes_nothing():
    assert (plan_memory([]).total_bytes, plan_memory([]).lower_bound_bytes) == (0, 0)


def test_the_largest_is_placed_first():
    """Else the two small ones leave no gap for it."""
    sizes_and_steps = [(64, 0, 0), (64, 0, 1), (128, 1, 2)]
    ranges = [
        LiveRange(key=key, size_bytes=size, first=first, last=last)
        for key, (size, first, last) in enumerate(sizes_and_steps)
    ]
    assert plan_memory(ranges).total_bytes == 192


@given(live_ranges())
def test_plan_is_at_least_the_lower_bound_and_never_worse_than_no_reuse(ranges):
    plan = plan_memory(ranges)
    assert (
        plan.lower_bound_bytes <= plan.total_bytes <= plan_memory(ranges, reuse=False).total_bytes
    )


def test_a_chain_needs_two_maps():
    chain = [LiveRange(key=i, size_bytes=1000, first=i, last=i + 1) for i in range(50)]
    assert plan_memory(chain).total_bytes == 2 * 1024
