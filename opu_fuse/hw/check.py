from dataclasses import dataclass
from opu_fuse.hw.spec import HwSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """path: keys to the culprit in the YAML."""

    path: tuple[str | int, ...]
    what: str
    help: str


def check_spec(spec: HwSpec) -> tuple[Problem, ...]:
    return ()
