"""What `hw diff`, `hw schema`, `hw check` and `hw draw` say of specs."""

import json

import pytest
import yaml

from opu_fuse.hw.spec.differences import difference_lines
from opu_fuse.hw.spec.draw import draw_svg
from opu_fuse.hw.spec.excerpt import excerpt
from opu_fuse.hw.spec.json_schema import json_schema
from opu_fuse.hw.spec.load_spec import load_hw, spec_names
from opu_fuse.resources import hw_specs_dir


def test_a_difference_names_key_and_both_values(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: opu-tiny\nname: mine\nbuffers: {feature: {words: 512}}\n"
        "dataflow: {modules: {pool: {bypass: true}}}\n"
    )
    assert list(difference_lines(load_hw("opu-tiny"), load_hw(path))) == [
        "buffers.feature.words: 256 -> 512",
        "dataflow.modules.pool.bypass: false -> true",
    ]
    assert list(difference_lines(load_hw("opu-tiny"), load_hw("opu-tiny"))) == []


def test_a_buffer_that_one_machine_has_is_shown_by_its_keys():
    lines = list(difference_lines(load_hw("opu-1024"), load_hw("opu-1024t")))
    assert "buffers.table.words: - -> 512" in lines
    assert not any(line.startswith("buffers.table:") for line in lines)


def strange_keys(value: object, schema: dict, parts: dict) -> list[str]:
    """Keys of a tree that its schema has not."""
    while "$ref" in schema or "anyOf" in schema:
        schema = (
            parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema["anyOf"][0]
        )
    if not isinstance(value, dict):
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    found = [key for key in value if key not in known and not isinstance(others, dict)]
    for key, inside in value.items():
        if key not in found:
            found += strange_keys(inside, known.get(key, others), parts)
    return found


@pytest.mark.parametrize("name", spec_names())
def test_the_schema_has_every_key_of_the_specs_of_the_package(name):
    tree, schema = yaml.safe_load((hw_specs_dir() / f"{name}.yaml").read_text()), json_schema()
    assert strange_keys(tree, schema, schema["$defs"]) == []
    tree["buffers"] = {"featur": {"words": 1}, "feature": {"word": 1}}
    assert strange_keys(tree, schema, schema["$defs"]) == ["featur", "word"]


def test_the_schema_knows_what_files_have_besides_the_keys_of_a_spec():
    tree = json.loads(json.dumps(json_schema()))
    assert "extends" in tree["properties"]
    assert "domain" in tree["$defs"]["Module"]["properties"]
    assert "required" not in tree


def test_a_message_shows_its_line_with_a_caret(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: x\n  name: y\n")
    assert list(excerpt(f"{path}:2")) == ["  2 |   name: y", "    |   ^"]
    assert list(excerpt(f"{path}:9")) == list(excerpt("opu-tinny")) == []


def test_a_picture_explains_its_strokes_where_it_stands_alone():
    spec = load_hw("opu-tiny")
    assert "dashed: data may pass it unused" in draw_svg(spec, legend=True)
    assert "dashed" not in draw_svg(spec).replace("stroke-dasharray", "")
