"""cppcheck finds nothing in libopu, and MISRA C:2012 is broken only by rules with a reason."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from opu_fuse.resources import rtl_dir, runtime_dir
from tests.tools import require_tools

LIBRARY = ("src", "hardware")
PROGRAMS = ("tools", "tests")

DEVIATIONS = {
    "2.2": "subtracts an offset that is 0 on this processor, or subtracts from 0",
    "2.4": "enumerations name the numbers of a file; code reads most of them from tables",
    "2.5": "headers have all registers of the machine",
    "5.7": "the addon takes enumerations without a tag for one tag",
    "5.9": "static functions of two files may have one name",
    "7.2": "INT64_MIN of the compiler's header",
    "8.7": "functions for callers of the library",
    "8.9": "tables at the head of a file",
    "9.3": "tables of the ISA leave what is 0 to the compiler",
    "10.1": "shifts of signed numbers: two's complement, checked by UBSan",
    "10.3": "C99 without bool: comparisons are int",
    "10.4": "literals without u",
    "10.6": "sums of 32-bit numbers that fit 32 bits",
    "10.7": "sums of 32-bit numbers that fit 32 bits",
    "10.8": "casts of results that are known to fit",
    "11.4": "addresses of the machine are offsets of pointers; alignment is checked",
    "11.5": "memory of the caller is bytes",
    "11.6": "alignment is checked",
    "11.8": "constants share an array of pointers with results, and are only read",
    "11.9": "0 is the null pointer in C and C++",
    "12.1": "the usual precedence",
    "12.2": "ranges of shifts that the addon cannot see; checked by UBSan",
    "12.3": "several variables in a declaration",
    "13.4": "assignments in conditions and chains",
    "14.2": "loops that count down or advance a cursor",
    "14.4": "numbers and pointers as conditions",
    "15.5": "guards return first",
    "15.6": "bodies of one statement without braces",
    "16.3": "macros that end in break, and cases that return",
    "17.7": "memcpy and memset return their argument",
    "17.8": "parameters that advance",
    "18.4": "pointers into memory of the caller advance by strides",
    "19.2": "lanes of a loop nest hold integers or reals",
    "20.1": "the driver is included after its macros",
    "20.5": "the driver has a function of libopu's name",
    "20.7": "macros that take a type or a member",
    "20.10": "names of registers are pasted together",
    "21.1": "feature macros of POSIX",
    "21.6": "the Linux back end reads sysfs",
    "21.10": "the Linux back end reads the clock",
    "21.14": "names of ZIP members are compared byte by byte",
    "21.16": "hashes are compared byte by byte",
}
"""Rules of MISRA C:2012 that the library does not follow."""


def _cppcheck(folders: Sequence[str], *options: str) -> list[str]:
    """Findings of cppcheck, one line each."""
    require_tools("cppcheck")
    runtime, driver = runtime_dir(), rtl_dir() / "driver"
    words = ["cppcheck", "--std=c99", "--quiet", "--template={file}:{line}: {id}: {message}"]
    words += [f"-I{folder}" for folder in (runtime / "include", runtime / "src", driver)]
    words += [*options, *(str(runtime / folder) for folder in folders), str(driver)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr.splitlines()


def test_cppcheck_finds_nothing() -> None:
    checks = "--enable=warning,style,performance,portability"
    assert _cppcheck((*LIBRARY, *PROGRAMS), checks, "--inconclusive", "--force") == []


def test_cppcheck_reads_the_files(tmp_path: Path) -> None:
    """The clean result above is not that of an empty list: a mistake next to them is found."""
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int wrong(int n) { int a[4] = {0}; return n == 4 ? a[n] : a[0]; }\n")
    found = _cppcheck(LIBRARY, "--enable=warning", str(wrong))
    assert [line.split(": ")[1] for line in found] == ["arrayIndexOutOfBoundsCond"]


@pytest.mark.nightly
def test_every_broken_rule_of_misra_has_a_reason() -> None:
    found = _cppcheck(LIBRARY, "--enable=style", "--addon=misra")
    rules = {
        match[1]: line for line in found if (match := re.search(r": misra-c2012-([\d.]+): ", line))
    }
    assert {rule: line for rule, line in rules.items() if rule not in DEVIATIONS} == {}
    assert DEVIATIONS.keys() <= rules.keys(), "a rule is no longer broken: remove its reason"
