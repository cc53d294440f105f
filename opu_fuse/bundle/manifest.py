"""`manifest.json` of a program file: a `Bundle` as strict JSON.

Constants, program words and models are members of their own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from opu_fuse.bundle.program import (
    OLDEST_SCHEMA,
    SCHEMA_VERSION,
    Boundary,
    Bundle,
    DerivedNodes,
    GroupInfo,
    HostSegment,
    MachineSegment,
    Port,
    Tensor,
)
from opu_fuse.errors import ProgramError
from opu_fuse.hw.isa.table import REGISTER, REGISTERS_PER_ENGINE, VALUE_BITS, Engine

NAME = "manifest.json"
_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_LARGEST_NUMBER = 1 << 44
"""Largest number that a manifest may have: the spec hash, with 44 bits, is the widest."""
_MAX_DIGITS = 20
"""Longer numbers are refused without conversion, since int() takes quadratic time."""
_READABLE_SCHEMAS = f"{OLDEST_SCHEMA} to {SCHEMA_VERSION}"
_VERSION_PATTERN = re.compile(r"[\w.+!-]{1,40}")
"""What a plausible tool version looks like. Any other text is not repeated in a message."""
_WRITES_RES_NEGATIVE = (
    Engine.POST * REGISTERS_PER_ENGINE + REGISTER[Engine.POST, "res_negative"].index
)
"""Upper bits of a word that writes post's `res_negative`.

The register is 0 in a program without such a word, so nothing is subtracted.
"""
_SCHEMA_TURN, _SCHEMA_BATCH, _SCHEMA_SUBTRACT = 3, 4, 5
"""First schema versions with ports that permute axes, with batches, and with what 5 has added."""
_Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Size in bytes and SHA-256 (hex) of a member of the archive."""

    bytes: int
    sha256: str


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Manifest:
    """The fields of `Bundle` under the same names, and the members of the archive."""

    schema_version: int
    tool_version: str
    model: str
    model_hash: str
    spec: str
    spec_hash: _Natural
    window_bytes: _Natural
    program_offset: _Natural
    members: dict[str, Member]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: tuple[Tensor, ...]
    groups: tuple[GroupInfo, ...]
    segments: tuple[MachineSegment | HostSegment, ...]
    boundaries: tuple[Boundary, ...]
    source_map: dict[str, DerivedNodes]
    batch: Annotated[int, Field(ge=1)] = 1


def manifest_of(bundle: Bundle, spec_name: str, members: Mapping[str, Member]) -> Manifest:
    """Content of a program's manifest."""
    return Manifest(
        schema_version=_schema_of(bundle),
        tool_version=bundle.tool_version,
        model=bundle.model,
        model_hash=bundle.model_hash,
        spec=spec_name,
        spec_hash=bundle.spec_hash,
        window_bytes=bundle.window_bytes,
        program_offset=bundle.program_offset,
        members=dict(members),
        inputs=bundle.inputs,
        outputs=bundle.outputs,
        tensors=bundle.tensors,
        groups=bundle.groups,
        segments=bundle.segments,
        boundaries=bundle.boundaries,
        source_map=dict(bundle.source_map),
        batch=bundle.batch,
    )


def _schema_of(bundle: Bundle) -> int:
    """The oldest schema version that can express a program, so that older opu-fuse can run it."""
    ports = (*bundle.inputs, *bundle.outputs)
    needs_tables_or_unrounded = any(port.unrounded or port.table for port in ports)
    subtracts = np.any(bundle.words >> VALUE_BITS == _WRITES_RES_NEGATIVE)
    if needs_tables_or_unrounded or subtracts:
        return _SCHEMA_SUBTRACT
    if bundle.batch > 1:
        return _SCHEMA_BATCH
    return _SCHEMA_TURN if any(port.turn for port in ports) else OLDEST_SCHEMA


def to_text(manifest: Manifest) -> str:
    """JSON, one line per key and per item of a list: short enough to read, easy to compare."""
    tree = _adapter().dump_python(manifest, mode="json")
    for port in (*tree["inputs"], *tree["outputs"]):
        for key in ("turn", "table", "unrounded"):
            if not port[key]:
                del port[key]  # absent, as in files of older schemas
    if manifest.batch == 1:
        del tree["batch"]
    return "{\n" + ",\n".join(_lines(tree)) + "\n}\n"


def _lines(tree: dict[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, list) and value:
            items = ",\n".join("  " + json.dumps(item) for item in value)
            yield f"{json.dumps(key)}: [\n{items}\n]"
        elif isinstance(value, dict) and value:
            pairs = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(value.items()))
            yield f"{json.dumps(key)}: {{\n" + ",\n".join(pairs) + "\n}"
        else:
            yield f"{json.dumps(key)}: {json.dumps(value)}"


def from_text(text: bytes, where: str) -> Manifest:
    """Parse and check against the schema. Raises ProgramError with the first mistake."""
    # First parse: refuse huge numbers and other schema versions before the strict schema applies.
    try:
        tree = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"{NAME} is no JSON ({error})") from None
    if not isinstance(tree, dict) or type(tree.get("schema_version")) is not int:
        raise damaged(where, f"{NAME} has no schema version")
    version, writer = tree["schema_version"], str(tree.get("tool_version"))
    if not OLDEST_SCHEMA <= version <= SCHEMA_VERSION:
        what = f"is of schema version {version}, this opu-fuse reads {_READABLE_SCHEMAS}"
        raise another_version(where, what, writer, newer=version > SCHEMA_VERSION)
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in first["loc"])
        raise damaged(where, f"{NAME}, {location}: {first['msg']}") from None


def _integer(digits: str) -> int:
    """Convert an integer. Raises ValueError for one larger than any program needs.

    Such a number could overflow the arithmetic of the readers.
    """
    value = int(digits) if len(digits) < _MAX_DIGITS else _LARGEST_NUMBER + 1
    if abs(value) > _LARGEST_NUMBER:
        raise ValueError(f"the number {digits[:_MAX_DIGITS]} is larger than any program needs")
    return value


def damaged(where: str, what: str) -> ProgramError:
    """The error for a damaged program file."""
    return ProgramError(where, what, "the file is damaged; compile the model again")


def another_version(where: str, what: str, writer: str, *, newer: bool = False) -> ProgramError:
    """The error for an intact file that another version of opu-fuse reads.

    writer: the version that the file names, which may be any text.
    """
    named = (
        f"opu-fuse {writer}" if _VERSION_PATTERN.fullmatch(writer) else "the opu-fuse that wrote it"
    )
    update = f"update to {named}" if newer else f"run it with {named}"
    return ProgramError(where, what, f"compile the model again, or {update}")


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)
