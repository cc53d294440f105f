"""Fixtures of the pass tests; the classes are in recorder.py."""

import onnx_ir as ir
import pytest

from opu_fuse.passes import registry
from tests.passes.recorder import CHAIN, model_of


@pytest.fixture
def model() -> ir.Model:
    """x -> Relu -> Neg -> y."""
    return model_of(CHAIN)


@pytest.fixture
def own_registry(monkeypatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
