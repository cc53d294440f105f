"""What all tests share: tiers, seeds, golden texts, the hypothesis profile.

Tiers: plain `pytest` is pure Python, `-m rtl` needs Verilator, `-m nightly` is for the patient. A
nightly test runs only when the -m expression names nightly, so `-m rtl` alone stays short.
"""

import logging
import os
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

GOLDEN_DIR = Path(__file__).parent / "golden"
IN_CI = os.environ.get("CI", "") == "true"
BASE_SEED = int(os.environ.get("OPU_FUSE_SEED", "1"))

hypothesis.settings.register_profile(
    "opu-fuse",
    deadline=None,  # shared machines make time limits per example meaningless
    derandomize=IN_CI,  # a change must not fail because of an example nobody has seen before
    print_blob=True,
)
hypothesis.settings.load_profile("opu-fuse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts under tests/golden/ again instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    if IN_CI and config.getoption("--update-golden"):
        raise pytest.UsageError("--update-golden is refused where CI=true: goldens are reviewed")


def pytest_report_header(config: pytest.Config) -> str:
    examples = "the same every time (CI=true)" if IN_CI else "fresh every time"
    return f"seed: OPU_FUSE_SEED={BASE_SEED}; hypothesis examples: {examples}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" in (config.getoption("markexpr") or ""):
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if not nightly:
        return
    config.hook.pytest_deselected(items=nightly)
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "opu_fuse" not in sys.modules or item.get_closest_marker("forks"):
        return (yield)
    from tests.lean import lean  # slow to import

    with lean():
        return (yield)


@pytest.fixture(autouse=True)
def loggers_stay_as_they_are() -> Iterator[None]:
    """The command line, called in this process, says what loggers print."""
    loggers = [logging.getLogger(), logging.getLogger("opu_fuse")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's own 32-bit seed, from OPU_FUSE_SEED and its id; shown when the test fails."""
    value = zlib.crc32(f"{BASE_SEED}:{request.node.nodeid}".encode())
    request.node.add_report_section("setup", "seed", f"{value} (OPU_FUSE_SEED={BASE_SEED})")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator started from this test's own seed."""
    return np.random.default_rng(seed)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/<test file>/<test>/<name>; a missing golden fails.

    `golden("partition.txt", text)`. With --update-golden the file is written instead. Texts end in
    one newline.
    """
    folder = golden_folder(request.node)
    update = request.config.getoption("--update-golden")
    seen: set[str] = set()

    def check(name: str, text: str) -> None:
        assert name not in seen, f"golden {name!r} is compared twice in one test"
        seen.add(name)
        path = folder / name
        actual = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        if not path.is_file():
            pytest.fail(f"golden {path} is missing; write it with --update-golden and review it")
        expected = path.read_text(encoding="utf-8")
        assert actual == expected, f"differs from {path}; if intended: --update-golden"

    return check


def golden_folder(item: pytest.Item) -> Path:
    """tests/golden/<path of the test file without .py>/<test name with its parameters>."""
    test_file = item.path.relative_to(Path(__file__).parent).with_suffix("")
    names = item.nodeid.split("::")[1:]
    return GOLDEN_DIR.joinpath(test_file, *(re.sub(r"[^\w.\-]+", "-", n).strip("-") for n in names))
