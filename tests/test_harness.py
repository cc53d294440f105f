"""The harness itself: tiers, goldens and seeds of conftest.py do what they promise."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester, monkeypatch):
    """A project of its own with our conftest.py and markers, and pytest run inside it."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts three times faster
    pytester.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        addopts = ["-m", "not rtl and not nightly"]
        markers = ["rtl", "nightly"]
        """
    )
    conftest = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
    pytester.mkdir("tests").joinpath("conftest.py").write_text(conftest, encoding="utf-8")

    def run(source: str, *options: str) -> pytest.RunResult:
        pytester.path.joinpath("tests", "test_it.py").write_text(source, encoding="utf-8")
        return pytester.runpytest_subprocess("tests", *options)

    return run


GOLDEN_TEST = """
def test_text(golden):
    golden("out.txt", "{text}")
"""


def test_a_missing_golden_fails(project):
    result = project(GOLDEN_TEST.format(text="a"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_text/out.txt is missing*--update-golden*"])


def test_a_written_golden_passes_until_the_text_changes(project, pytester):
    project(GOLDEN_TEST.format(text="a"), "--update-golden").assert_outcomes(passed=1)
    assert (pytester.path / "tests/golden/test_it/test_text/out.txt").read_text() == "a\n"
    project(GOLDEN_TEST.format(text="a")).assert_outcomes(passed=1)
    project(GOLDEN_TEST.format(text="b")).assert_outcomes(failed=1)


def test_goldens_cannot_be_updated_in_ci(project, monkeypatch):
    monkeypatch.setenv("CI", "true")
    result = project(GOLDEN_TEST.format(text="a"), "--update-golden")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


TIERS_TEST = """
import pytest

def test_plain(): pass

@pytest.mark.rtl
def test_rtl(): pass

@pytest.mark.rtl
@pytest.mark.nightly
def test_rtl_nightly(): pass
"""


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ((), {"test_plain"}),
        (("-m", "rtl"), {"test_rtl"}),
        (("-m", "nightly"), {"test_rtl_nightly"}),
        (("-m", ""), {"test_plain", "test_rtl"}),
    ],
)
def test_each_tier_runs_its_own_tests(project, options, ran):
    result = project(TIERS_TEST, "-v", *options)
    passed = {line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line}
    assert passed == ran


def test_a_tier_without_tests_is_a_failure(project):
    assert project("", "-m", "rtl").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_failing_test_shows_its_seed_and_an_environment_variable_changes_it(project, monkeypatch):
    source = "def test_seed(seed): assert seed < 0"
    shown = []
    for base in ("1", "1", "2"):
        monkeypatch.setenv("OPU_FUSE_SEED", base)
        result = project(source)
        shown += [line for line in result.outlines if f"(OPU_FUSE_SEED={base})" in line]
        result.stdout.fnmatch_lines([f"seed: OPU_FUSE_SEED={base};*"])
    assert len(shown) == 3
    assert shown[0] == shown[1] != shown[2]
