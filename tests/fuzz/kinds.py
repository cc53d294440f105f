"""All kinds of cases, by name.

A kind's module is imported when it is asked for: with it comes what it needs of the product, so
that workers are forked warm, and so that an older product can be run that lacks what others need.
"""

from importlib import import_module

from tests.fuzz.cases import Kind

HOMES = {
    "networks": "networks:KIND",
    "rtl": "networks:RTL",
    "careless": "networks:CARELESS",
    "pipelines": "pipelines:KIND",
    "pipelines-rtl": "pipelines:RTL",
    "models": "models:KIND",
    "specs": "specs:KIND",
    "programs": "programs:KIND",
    "options": "options:KIND",
    "native": "native:KIND",
    "runtime": "runtime:KIND",
}


def kind(name: str) -> Kind:
    """The kind of a name."""
    module, _, attribute = HOMES[name].partition(":")
    return getattr(import_module(f"tests.fuzz.{module}"), attribute)
