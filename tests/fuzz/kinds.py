"""All kinds of cases, by name. This imports the whole product, so that workers are forked warm."""

from tests.fuzz import models, networks, options, programs, specs
from tests.fuzz.cases import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (networks.KIND, networks.RTL, models.KIND, specs.KIND, programs.KIND, options.KIND)
}
