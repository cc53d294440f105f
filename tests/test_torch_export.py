"""Modules of PyTorch: the numbers of the module, mistakes in one line. Most tests need torch."""

import sys

import numpy as np
import pytest

import opu_fuse
from opu_fuse.errors import ModelError, RunError, UserError


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RunError) as error:
        opu_fuse.from_torch(object(), (), "opu-tiny")
    assert str(error.value) == (
        "from_torch: modules are exported by torch, which is not installed; "
        "pip install 'opu-fuse[torch]'"
    )


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="extra `torch` is not installed")


@pytest.fixture
def net(torch):
    """As it is while trained: with a dropout that drops half, and statistics to be updated."""
    torch.manual_seed(0)
    net = torch.nn.Sequential()
    for name, part in {
        "stem": torch.nn.Conv2d(3, 16, 3, padding=1, bias=False),
        "norm": torch.nn.BatchNorm2d(16),
        "act": torch.nn.ReLU(),
        "mean": torch.nn.AdaptiveAvgPool2d(1),
        "flat": torch.nn.Flatten(),
        "drop": torch.nn.Dropout(),
        "head": torch.nn.Linear(16, 10),
    }.items():
        net.add_module(name, part)
    net.norm.eval()
    return net


@pytest.mark.nightly
def test_a_program_has_the_numbers_of_the_module_and_leaves_it_as_it_was(torch, net, rng):
    images = rng.normal(size=(16, 3, 16, 16)).astype(np.float32)
    program = opu_fuse.from_torch(net, torch.zeros(1, 3, 16, 16), "opu-tiny", calibration=images)
    assert net.training
    assert net.drop.training
    assert not net.norm.training
    assert not program.bundle.hosts
    (got,) = program.run(images).outputs.values()
    wanted = net.eval()(torch.from_numpy(images)).detach().numpy()
    noise = np.square(got - wanted).sum() / np.square(wanted).sum()
    assert noise < 1e-3  # 30 dB


@pytest.mark.nightly
def test_inputs_have_the_names_of_the_parameters_of_forward(torch):
    class Sum(torch.nn.Module):
        def forward(self, left, right):
            return torch.relu(left + right)

    maps = (torch.zeros(1, 8, 4, 4), torch.zeros(1, 8, 4, 4))
    program = opu_fuse.from_torch(Sum(), maps, "opu-tiny")
    assert [port.name for port in program.bundle.inputs] == ["left", "right"]


@pytest.mark.nightly
def test_what_cannot_be_exported_is_refused_in_one_line(torch, net):
    class Branch(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    for arguments, kind, said in (
        ((Branch(), torch.zeros(1, 3)), ModelError, "module Branch: torch cannot export it ("),
        ((net, torch.zeros(1, 4, 8, 8)), ModelError, "to have 3 channels, but got 4"),
        ((net, [1, 2]), UserError, "example_inputs are neither a tensor nor a tuple of tensors"),
        ((net.state_dict(), torch.zeros(1)), UserError, "is no torch.nn.Module"),
    ):
        with pytest.raises(kind) as error:
            opu_fuse.from_torch(*arguments, "opu-tiny")
        assert said in str(error.value)
        assert "\n" not in str(error.value)
