"""All kinds of cases, by name. This imports the whole product, so that workers are forked warm."""

from tests.fuzz import networks
from tests.fuzz.cases import Kind

KINDS: dict[str, Kind] = {kind.name: kind for kind in (networks.KIND, networks.RTL)}
