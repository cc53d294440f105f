"""Which test files a change can reach, the nearest first.

A test file reaches what it imports, directly or through other modules of the repository. A text in
it that is the name of a module (as benches are given to cocotb) counts as an import. Files that are
no Python are reached by name: a golden by the test that it belongs to, pages by `test_docs.py`,
the C library by the test of the native engine, everything else by the test files in whose text its
name occurs. What is loaded in other ways is not seen; docs/testing.md says what that means.
"""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.mutation.concern import CONCERN

ROOT = Path(__file__).parents[2]
SOURCES = ("opu_fuse", "tests", "rtl_sim", "benchmarks", "examples")
DOCS = "tests/test_docs.py"
NATIVE = "tests/sim/test_native.py"

Graph = Mapping[str, frozenset[str]]
"""File -> files that it imports, both relative to the repository."""


@cache
def imports() -> Graph:
    """Of every Python file of the repository."""
    files = {
        path.relative_to(ROOT).as_posix(): path
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    modules = {_module(file): file for file in files}
    found: dict[str, frozenset[str]] = {}
    for file, path in files.items():
        named = {modules[name] for name in _named(path, modules) if name in modules}
        # pytest gives the tests of a folder what its conftest.py and those above hold.
        above = {f"{folder}/conftest.py" for folder in Path(file).parents}
        found[file] = frozenset(named | (above & files.keys())) - {file}
    return found


def reached(changed: Iterable[str]) -> list[str]:
    """Test files that a change of these files can reach, the nearest first.

    Near is: changed itself, named in `concern.py`, then by the number of imports between the two;
    of equally near ones those that import less come first.
    """
    graph = imports()
    tests = [file for file in graph if Path(file).name.startswith("test_")]
    nearest: dict[str, int] = {}
    for file in changed:
        for test, far in _distances(file, graph, tests).items():
            nearest[test] = min(far, nearest.get(test, far))
    return sorted(nearest, key=lambda test: (nearest[test], len(_below(test)), test))


def _distances(file: str, graph: Graph, tests: list[str]) -> dict[str, int]:
    """Test file -> how far it is from the changed one."""
    if file not in graph:
        return dict.fromkeys(_by_name(file, tests), 0)
    readers, far = _readers(), {file: 0}
    todo = deque([file])
    while todo:
        at = todo.popleft()
        for reader in readers.get(at, ()):
            if reader not in far:
                far[reader] = far[at] + 1
                todo.append(reader)
    concern = [name.split("::")[0] for name in CONCERN.get(file, ())]
    return {test: far[test] for test in tests if test in far} | {
        test: 0 for test in tests if test.startswith(tuple(concern))
    }


@cache
def _readers() -> Mapping[str, list[str]]:
    """File -> files that import it."""
    found: dict[str, list[str]] = {}
    for reader, read in imports().items():
        for other in read:
            found.setdefault(other, []).append(reader)
    return found


def _by_name(file: str, tests: list[str]) -> list[str]:
    path = Path(file)
    if file.startswith("tests/golden/"):
        owner = [test for test in tests if file.startswith(f"tests/golden/{test[6:-3]}/")]
        return owner or [DOCS]
    if file.startswith("runtime/"):
        return [NATIVE]
    found = [test for test in tests if path.stem in _text(test)]
    return [*found, DOCS] if path.suffix == ".md" else found


@cache
def _below(file: str) -> frozenset[str]:
    """All that a file imports, directly or not."""
    graph, found, todo = imports(), {file}, [file]
    while todo:
        more = graph[todo.pop()] - found
        found |= more
        todo += more
    return frozenset(found)


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _named(path: Path, modules: Mapping[str, str]) -> Iterator[str]:
    """Names that may be modules: imported anywhere in the file, or standing in a text. A package of
    which only modules are taken is not among them.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                taken = [f"{module}.{alias.name}" for alias in names]
                yield from taken
                if not all(name in modules for name in taken):
                    yield module
            case ast.Constant(value=str(text)) if "." in text:
                yield text
            case _:
                pass
