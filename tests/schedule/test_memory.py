"""Live tensors never share bytes; dead ones give theirs away."""

from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.schedule.memory import ALIGNMENT, LiveRange, plan_memory


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
def test_plan_is_at_least_the_lower_bound_and_never_worse_than_no_reuse(ranges):
    plan = plan_memory(ranges)
    assert (
        plan.lower_bound_bytes <= plan.total_bytes <= plan_memory(ranges, reuse=False).total_bytes
    )


def test_a_chain_needs_two_maps():
    chain = [LiveRange(key=i, size_bytes=1000, first=i, last=i + 1) for i in range(50)]
    assert plan_memory(chain).total_bytes == 2 * 1024
