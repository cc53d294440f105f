"""A malformed spec is refused with file, line, key and a way out."""

import pytest
from yaml import CSafeLoader

from opu_fuse.hw.spec import yaml_tree
from opu_fuse.hw.spec.load_spec import spec_names
from opu_fuse.resources import hw_specs_dir

HEAD = "extends: opu-tiny\nname: mine\n"


def has(messages, start, inside=""):
    """One line that contains both texts."""
    return any(start in m and inside in m and "\n" not in m for m in messages)


SYNTAX = {
    "an unknown key": (
        HEAD + "dram:\n  bus_bits: 64\n",
        "mine.yaml:4: unknown key 'bus_bits' in dram; known keys: bus_bytes, ",
        "did you mean 'bus_bytes'",
    ),
    "an unknown key at the top": (
        HEAD + "clock_mzh: 3\n",
        "mine.yaml:3: unknown key 'clock_mzh'; known keys: name, description",
        "did you mean 'clock_mhz'",
    ),
    "an unknown key of a module": (
        HEAD + "dataflow:\n  modules:\n    pool:\n      bypas: true\n",
        "mine.yaml:6: unknown key 'bypas' in dataflow.modules.pool;",
        "did you mean 'bypass'",
    ),
    "an unknown limit": (
        HEAD + "dataflow: {modules: {pool: {limits: {windows: 3}}}}\n",
        "mine.yaml:3: unknown key 'windows' in dataflow.modules.pool.limits;",
        "did you mean 'window'",
    ),
    "an unknown key of a mode": (
        HEAD + "array:\n  modes:\n  - {ic: 8, oc: 4, pix: 1}\n",
        "mine.yaml:5: unknown key 'pix' in array.modes.0; known keys: ic, oc, px",
        "",
    ),
    "an unknown kind": (
        HEAD + "dataflow:\n  modules:\n    pool: {kind: pooll}\n",
        "mine.yaml:5: dataflow.modules.pool.kind is 'pooll', which is not known; known: mem_rd, ",
        "did you mean 'pool'",
    ),
    "an unknown kind in the operator map": (
        HEAD + "dataflow:\n  operators:\n    conv: [ip]\n",
        "mine.yaml:5: dataflow.operators.conv.0 is 'ip', which is not known",
        "did you mean 'ipa'",
    ),
    "a duplicate key": (
        HEAD + "dram:\n  latency: 1\n  latency: 2\n",
        "mine.yaml:5: key 'dram.latency' appears twice (first in line 4); remove one of them",
        "",
    ),
    "text for a number": (
        HEAD + "counter_bits: six\n",
        "mine.yaml:3: counter_bits 'six': ",
        "valid integer",
    ),
    "a fraction for a count": (
        HEAD + "counter_bits: 6.5\n",
        "mine.yaml:3: counter_bits 6.5: ",
        "integer",
    ),
    "true for a number": (
        HEAD + "counter_bits: true\n",
        "mine.yaml:3: counter_bits True: ",
        "integer",
    ),
    "a quoted number": (HEAD + 'counter_bits: "6"\n', "mine.yaml:3: counter_bits '6': ", "write 6"),
    "a number out of range": (
        HEAD + "dram: {max_burst: 257}\n",
        "mine.yaml:3: dram.max_burst 257: ",
        "less than or equal to 256",
    ),
    "yes for true": (HEAD + "build: yes\n", "mine.yaml:3: build 'yes': ", "write true"),
    "infinity": (HEAD + "clock_mhz: .inf\n", "mine.yaml:3: clock_mhz is not a finite number", ""),
    "a list for a mapping": (HEAD + "dram: [1]\n", "mine.yaml:3: dram [1]: ", ""),
    "an upper-case name": (
        "extends: opu-tiny\nname: Mine\n",
        "mine.yaml:2: name 'Mine': ",
        "small letters",
    ),
    "a missing key": ("name: mine\n", "mine.yaml:1: key 'description' is missing", "add it"),
    "a removed key": (
        HEAD + "dram: {latency: null}\n",
        "key 'dram.latency' is missing; add it, or extend a spec that has it",
        "",
    ),
    "no YAML": ("name: [\n", "mine.yaml:2: YAML: ", ""),
    "a list as spec": ("- a\n", "mine.yaml:1: is not a mapping of keys to values", ""),
    "an empty file": ("", "mine.yaml:1: is not a mapping of keys to values", ""),
    "control characters": ("name: \x01\n", "mine.yaml:1: YAML: holds characters", ""),
    "a Python object": (
        "name: !!python/name:os.system\n",
        "mine.yaml:1: values of type 'python/name",
        "",
    ),
    "an empty tagged number": (
        HEAD + 'counter_bits: !!int ""\n',
        "mine.yaml:3: '' is not of type int",
        "",
    ),
    "binary data": (
        HEAD + "description: !!binary aGk=\n",
        "mine.yaml:3: values of type 'binary' are not supported",
        "",
    ),
    "a surrogate": (
        HEAD + 'description: "\\ud800"\n',
        "mine.yaml:3: '\\ud800' is not of type str",
        "",
    ),
    "a surrogate as key": (HEAD + '"\\ud800": 1\n', "mine.yaml:3: key '\\ud800' is not text", ""),
    "a list as key": (
        HEAD + "? [1, 2]\n: x\n",
        "mine.yaml:3: key of several values is not text",
        "",
    ),
    "nesting without end": (
        HEAD + "dram: " + "[" * 3000,
        "mine.yaml:1: YAML: nested too deeply",
        "",
    ),
    "a number as key": (HEAD + "7: x\n", "mine.yaml:3: key '7' is not text", ""),
    "an anchor": (
        HEAD + "dram: &d {latency: 3}\n",
        "mine.yaml:3: anchors and aliases are not supported",
        "extends",
    ),
    "a merge key": (
        HEAD + "<<: {build: false}\n",
        "mine.yaml:3: merge keys are not supported",
        "extends",
    ),
    "an unknown base": (
        "extends: opu-tini\nname: mine\n",
        "mine.yaml:1: extends: unknown machine; known: ",
        "did you mean 'opu-tiny'",
    ),
    "a base that is a number": (
        "extends: 3\nname: mine\n",
        "mine.yaml:1: extends is 3, not a name or path",
        "",
    ),
    "a spec that extends itself": (
        "extends: ./mine.yaml\nname: mine\n",
        "mine.yaml:1: the spec extends itself",
        "remove one `extends`",
    ),
    "a spec that is called like its base": (
        "extends: opu-tiny\ndescription: mine\n",
        "mine.yaml:1: the spec has no `name` of its own; give it one",
        "",
    ),
    "domain written twice": (
        HEAD + "dataflow: {modules: {pool: {domain: act, domain_in: act}}}\n",
        "mine.yaml:3: module 'pool' has `domain` and `domain_in`",
        "",
    ),
}


@pytest.mark.parametrize("case", SYNTAX)
def test_a_malformed_spec_is_refused_with_line_and_help(case, explain):
    text, start, inside = SYNTAX[case]
    messages = explain(text)
    assert has(messages, start, inside), messages


def test_a_mistake_inherited_from_another_file_names_that_file(tmp_path, explain):
    (tmp_path / "base.yaml").write_text("extends: opu-tiny\nname: base\ndram:\n  latency: fast\n")
    messages = explain("extends: base.yaml\nname: mine\n")
    assert messages[0].startswith("base.yaml:4: dram.latency 'fast'")


ODD = """\
numbers: [0, 010, 0x1f, 1_000, 1e3, 1.5e+3, .inf, -.5, 12:30]
words: [yes, No, true, FALSE, ~, null, 2024-01-01, "1", '', <<]
text: |
  of several

  lines
folded: >-
  a
  b
"quoted \\u00e9": {a: {b: [{c: d}, [e]]}}
"""


@pytest.mark.parametrize("file", [*(f"{name}.yaml" for name in spec_names()), "odd"])
def test_both_parsers_read_the_same(file, monkeypatch):
    """PyYAML's own says what is wrong with a file, and reads it where there is no libyaml."""
    text = ODD if file == "odd" else (hw_specs_dir() / file).read_text(encoding="utf-8")
    assert issubclass(yaml_tree._QuickLoader, CSafeLoader)
    quick = yaml_tree.parse_tree(text, file)
    monkeypatch.setattr(yaml_tree, "_QuickLoader", yaml_tree._Loader)
    plain = yaml_tree.parse_tree(text, file)
    assert quick == plain
    assert quick.value
