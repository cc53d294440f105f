"""The schema of a spec as JSON schema, for editors that complete and check YAML by one."""

import json
from typing import Any

from pydantic import TypeAdapter

from opu_fuse.hw.spec.hw_spec import HwSpec

SCHEMA_FILE = "opu-spec.schema.json"
"""Name of the schema next to specs that refer to it: a path that works in a clone, in an
installed wheel and in any folder to which both are copied.
"""


def schema_line() -> str:
    """The comment by which editors find the schema next to a spec."""
    return f"# yaml-language-server: $schema={SCHEMA_FILE}"


def schema_text() -> str:
    """The content of SCHEMA_FILE."""
    return json.dumps(json_schema(), indent=2) + "\n"


def json_schema() -> dict[str, Any]:
    """JSON schema of the files that users write: keys may be inherited (`extends`) or removed
    (`null`), and modules have `domain` for both sides.
    """
    tree = TypeAdapter(HwSpec).json_schema()
    tree["properties"]["extends"] = {"type": "string", "description": "name or path of a spec"}
    parts = tree["$defs"]
    parts["Module"]["properties"]["domain"] = parts["Module"]["properties"]["domain_in"]
    for part in (tree, *(p for p in parts.values() if "properties" in p)):
        part.pop("required", None)
        part["additionalProperties"] = False
        own = part["properties"]
        part["properties"] = {k: {"anyOf": [v, {"type": "null"}]} for k, v in own.items()}
    for key in ("modules", "edges", "operators"):
        values = parts["Dataflow"]["properties"][key]["anyOf"][0]
        inside = values["additionalProperties"]
        values["additionalProperties"] = {"anyOf": [inside, {"type": "null"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tree}
