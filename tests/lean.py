"""Test processes without what costs them more than a user's process.

* Forks: a test process has the whole suite in memory, so a fork takes longer than most of what runs
  in it. onnx's checks and the runs of calibration, a third of the time of the plain tests, run in
  the process itself.
* Threads of ONNX Runtime: they spin while they wait, on a core that another test process needs.

Tests marked `forks` have both: those whose libraries abort, do not end or print. Other users of the
sandbox fork in all tests.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import onnxruntime
import pytest

from opu_fuse.frontend.importing import onnx_checks
from opu_fuse.frontend.quantization import activation_ranges
from opu_fuse.model import inference
from opu_fuse.process import sandbox


class _OneThread(onnxruntime.SessionOptions):
    def __init__(self) -> None:
        super().__init__()
        self.intra_op_num_threads = 1


@contextmanager
def lean() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (onnx_checks, inference, activation_ranges):
            patch.setattr(module, "in_child", _here)
        patch.setattr(onnx_checks, "in_child_concurrently", _when_asked)
        patch.setattr(onnxruntime, "SessionOptions", _OneThread)
        yield


def _here(work: Callable[[], Any], **_: Any) -> Any:
    """As `in_child` without its limits; the result is copied, as through its pipe."""
    level = logging.root.manager.disable
    logging.disable()
    try:
        payload = sandbox._payload(work)
    finally:
        logging.disable(level)
    return sandbox._result(payload, 0)


@contextmanager
def _when_asked(work: Callable[[], Any], **_: Any) -> Generator[Callable[[], Any]]:
    """As `in_child_concurrently`."""
    yield lambda: _here(work)
