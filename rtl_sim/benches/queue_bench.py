"""opu_queue against a deque, with random pauses on both sides."""

from collections import deque

import cocotb

from rtl_sim.benches.cycles import ROUNDS, begin, cycle, generator, high, settled


async def traffic(dut, rng, depth, push_chance, pop_chance, cycles):
    """Random pushes and pops; everything that goes in comes out, in order."""
    model = deque()
    offered = None
    fullest = 0
    for _ in range(cycles):
        if offered is None and rng.random() < push_chance:
            offered = int(rng.integers(1 << 32))
        pop = rng.random() < pop_chance
        dut.push_valid_i.value = int(offered is not None)
        dut.push_data_i.value = offered or 0
        dut.pop_ready_i.value = int(pop)
        await settled()
        assert high(dut.push_ready_o) == (len(model) < depth), "ready says something else than room"
        assert high(dut.pop_valid_o) == bool(model), "valid says something else than content"
        if model:
            assert int(dut.pop_data_o.value) == model[0], "not the oldest entry"
        taken = offered is not None and len(model) < depth
        if pop and model:
            model.popleft()
        if taken:
            model.append(offered)
            offered = None
        fullest = max(fullest, len(model))
        await cycle(dut)
    return model, fullest


@cocotb.test()
async def what_goes_in_comes_out_in_order(dut):
    rng = generator()
    depth = int(dut.DEPTH.value)
    await begin(dut, push_valid_i=0, push_data_i=0, pop_ready_i=0)
    reached = 0
    for push_chance, pop_chance in ((0.9, 0.3), (0.3, 0.9), (1.0, 1.0), (0.5, 0.5)):
        left, fullest = await traffic(dut, rng, depth, push_chance, pop_chance, ROUNDS // 4)
        reached = max(reached, fullest)
        await drain(dut, left)
    assert reached == depth, "the bench never filled the queue"


async def drain(dut, model):
    """Take out what is left; then the queue is empty."""
    dut.push_valid_i.value = 0
    dut.pop_ready_i.value = 1
    while model:
        await settled()
        assert int(dut.pop_data_o.value) == model.popleft()
        await cycle(dut)
    await settled()
    assert not high(dut.pop_valid_o), "not empty at the end"
    await cycle(dut)
    dut.pop_ready_i.value = 0
