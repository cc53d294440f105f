"""Program files: `save` and `load` of `name.opu` (docs/program-file.md).

A ZIP without compression, members sorted, times fixed: the same bundle gives the same bytes. Large
members are hashed and written directly, without copies.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from opu_fuse.bundle import manifest as manifests
from opu_fuse.bundle.check import check_bundle, mistakes
from opu_fuse.bundle.listing import program_listing
from opu_fuse.bundle.manifest import Manifest, Member, another_version, damaged
from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.runtime_member import host_steps_in, runtime_member
from opu_fuse.errors import InternalError, ProgramError, SpecError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.process.atomic_files import whole_file

SPEC, PROGRAM, LISTING, DRAM, QDQ, FUSED, RUNTIME = (
    "spec.yaml",
    "program.bin",
    "program.asm",
    "dram.bin",
    "qdq.onnx",
    "fused.onnx",
    "runtime.bin",
)
_MODELS = (".onnx", ".tflite")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
"""Unix mode of a regular file, in the upper half of a ZIP entry's attributes."""
_LARGEST_MANIFEST = 1 << 28
"""Bytes: a manifest is read whole, so that a damaged size must not take all memory."""


def save(bundle: Bundle, path: str | Path) -> None:
    """Write a program file. The file appears whole or not at all, replacing an older one.

    Raises InternalError when the bundle breaks its own promises, ProgramError when the file cannot
    be written.
    """
    path = Path(path)
    members = _all_members(bundle, _spec_of(bundle.spec_yaml, str(path)))
    try:
        with whole_file(path) as temporary:
            _write(temporary, members)
    except OSError as error:
        raise ProgramError(
            str(path), f"cannot be written ({error.strerror})", "choose another output file"
        ) from None


def to_bytes(bundle: Bundle, hw: HwSpec, *, without: Collection[str] = ()) -> bytes:
    """The program file in memory, as `save` writes it. hw: the machine of the bundle. without:
    members that the manifest names and the file has not.
    """
    whole = io.BytesIO()
    members = _all_members(bundle, hw)
    _write(whole, {name: data for name, data in members.items() if name not in without})
    return whole.getvalue()


def load(path: str | Path) -> Bundle:
    """Read a program file; version, hashes and bounds are checked before anything is used.

    Raises ProgramError with one line for files that are missing, damaged, truncated or no programs.
    """
    path = Path(path)
    where = str(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            what = "cannot be read (it is no file)"
            raise ProgramError(where, what, "give the file that compile wrote")
        with zipfile.ZipFile(path) as archive:
            sizes = _sizes(archive, path)
            if sizes.get(manifests.NAME, 0) > _LARGEST_MANIFEST:
                raise damaged(where, f"{manifests.NAME} is larger than any program needs")
            facts = manifests.from_text(archive.read(manifests.NAME), where)
            _check_members(facts, sizes, where)
            data = {
                name: _read(archive, name, facts.members[name], where) for name in facts.members
            }
    except FileNotFoundError:
        raise ProgramError(where, "no such file", "give the file that compile wrote") from None
    except OSError as error:
        raise ProgramError(
            where, f"cannot be read ({error.strerror or error})", "give the file that compile wrote"
        ) from None
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, zlib.error) as error:
        if path.suffix in _MODELS:
            what = "is a model, not a program"
            raise ProgramError(where, what, "compile it first (opu-fuse compile)") from None
        raise damaged(where, f"is no complete program file ({_first_line(error)})") from None
    except (ValueError, RuntimeError, OverflowError) as error:
        raise damaged(where, f"is no program file ({_first_line(error)})") from None
    return _assemble(facts, data, where)


def _assemble(facts: Manifest, data: Mapping[str, bytes], where: str) -> Bundle:
    try:
        spec_yaml = data[SPEC].decode()
    except UnicodeDecodeError:
        raise damaged(where, f"{SPEC} is no text") from None
    hw = _spec_of(spec_yaml, where)
    if hw.spec_hash != facts.spec_hash or hw.name != facts.spec:  # keys that it did not have
        what = f"{SPEC} is not the machine {facts.spec} {facts.spec_hash:011x} to this opu-fuse"
        raise another_version(where, what, facts.tool_version)
    if len(data[PROGRAM]) % 4:
        raise damaged(where, f"{PROGRAM} has {len(data[PROGRAM])} bytes, not whole words")
    bundle = Bundle(
        model=facts.model,
        model_hash=facts.model_hash,
        spec_yaml=spec_yaml,
        spec_hash=facts.spec_hash,
        tool_version=facts.tool_version,
        tensors=facts.tensors,
        inputs=facts.inputs,
        outputs=facts.outputs,
        groups=facts.groups,
        segments=facts.segments,
        boundaries=facts.boundaries,
        source_map=facts.source_map,
        window_bytes=facts.window_bytes,
        program_offset=facts.program_offset,
        constants=np.frombuffer(data[DRAM], np.uint8),
        words=np.frombuffer(data[PROGRAM], "<u4"),
        hosts={name: data[name] for name in sorted(data) if name.startswith("host/")},
        qdq=data.get(QDQ, b""),
        fused=data.get(FUSED, b""),
        batch=facts.batch,
    )
    check_bundle(bundle, hw, where)
    return _with_runtime(bundle, hw, data[RUNTIME], where) if RUNTIME in data else bundle


def _with_runtime(bundle: Bundle, hw: HwSpec, member: bytes, where: str) -> Bundle:
    """The bundle with the steps for libopu. A member of another version is left to libopu."""
    try:
        steps = host_steps_in(member)
    except ValueError as error:
        raise damaged(where, f"{RUNTIME} {error}") from None
    if steps is None:
        return bundle
    bundle = replace(bundle, host_steps=steps)
    if member != runtime_member(bundle, hw):
        raise damaged(where, f"{RUNTIME} is not what {manifests.NAME} says")
    return bundle


def _all_members(bundle: Bundle, hw: HwSpec) -> dict[str, Any]:
    """As buffers. Raises InternalError when the bundle breaks its own promises."""
    for what in mistakes(bundle, hw):
        raise InternalError("writing the program", what)
    members = _members(bundle, hw)
    facts = {name: _member(data) for name, data in members.items()}
    text = manifests.to_text(manifests.manifest_of(bundle, hw.name, facts))
    return members | {manifests.NAME: text.encode()}


def _members(bundle: Bundle, hw: HwSpec) -> dict[str, Any]:
    """Everything but the manifest, as buffers."""
    members: dict[str, Any] = {
        SPEC: bundle.spec_yaml.encode(),
        PROGRAM: np.ascontiguousarray(bundle.words, "<u4").data,
        LISTING: program_listing(bundle, hw).encode(),
        DRAM: np.ascontiguousarray(bundle.constants, np.uint8).data,
        RUNTIME: runtime_member(bundle, hw),
        **bundle.hosts,
    }
    models = {QDQ: bundle.qdq, FUSED: bundle.fused}
    return members | {name: data for name, data in models.items() if data}


def _member(data: Any) -> Member:
    view = memoryview(data).cast("B")
    return Member(bytes=view.nbytes, sha256=hashlib.sha256(view).hexdigest())


def _write(target: Path | io.BytesIO, members: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for member in sorted(members):
            view = memoryview(members[member]).cast("B")
            info = zipfile.ZipInfo(member, _EPOCH)
            info.create_system = 3
            info.external_attr = _REGULAR_FILE
            info.file_size = view.nbytes
            with archive.open(info, "w") as member_file:
                member_file.write(view)


def _sizes(archive: zipfile.ZipFile, path: Path) -> dict[str, int]:
    """Member name -> bytes; refuses what `save` never writes before any of it is unpacked."""
    sizes: dict[str, int] = {}
    available = path.stat().st_size
    for info in archive.infolist():
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored or info.file_size > available or info.filename in sizes:
            raise damaged(str(path), f"member {info.filename!r} is not stored as opu-fuse does")
        sizes[info.filename] = info.file_size
    if manifests.NAME not in sizes:
        raise ProgramError(
            str(path), f"is a ZIP without {manifests.NAME}", "give the file that compile wrote"
        )
    return sizes


def _check_members(facts: Manifest, sizes: Mapping[str, int], where: str) -> None:
    required = {SPEC, PROGRAM, LISTING, DRAM}
    missing = sorted((required | set(facts.members)) - set(sizes) | required - set(facts.members))
    extra = sorted(set(sizes) - set(facts.members) - {manifests.NAME})
    for names, what in ((missing, "lacks"), (extra, "holds, unlisted,")):
        if names:
            raise damaged(where, f"{what} {names[0]}")


def _read(archive: zipfile.ZipFile, name: str, fact: Member, where: str) -> bytes:
    data = archive.read(name)
    if len(data) != fact.bytes or hashlib.sha256(data).hexdigest() != fact.sha256:
        raise damaged(where, f"{name} is not what {manifests.NAME} says (hash differs)")
    return data


def _spec_of(text: str, where: str) -> HwSpec:
    try:
        return load_hw_text(text, f"{where}:{SPEC}")
    except SpecError as error:
        raise damaged(where, f"{SPEC}: {error.what}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
