"""Write every file that is generated from the ISA table, the control registers and the specs
(`python -m opu_fuse.hw.rtlgen.generate`).

The files are checked in; a test regenerates them and compares bytes.
"""

from opu_fuse.generated_files import write_generated
from opu_fuse.hw.isa.param_types import params_module
from opu_fuse.hw.isa.reference_pages import isa_page, registers_page
from opu_fuse.hw.rtlgen.c_header import c_header
from opu_fuse.hw.rtlgen.c_reference import libopu_page
from opu_fuse.hw.rtlgen.c_runtime import machine_header, tables_header
from opu_fuse.hw.rtlgen.sv_package import sv_files
from opu_fuse.hw.spec.draw import draw_svg
from opu_fuse.hw.spec.json_schema import SCHEMA_FILE, schema_text
from opu_fuse.hw.spec.load_spec import load_hw, spec_names


def generated_files() -> dict[str, str]:
    """Path below the project folder -> text of every generated file."""
    files = {
        "docs/isa.md": isa_page(),
        "docs/libopu.md": libopu_page(),
        "docs/registers.md": registers_page(),
        f"hw_specs/{SCHEMA_FILE}": schema_text(),
        "opu_fuse/units/params.py": params_module(),
        "rtl_sim/gen/opu_regs.h": c_header(),
        "runtime/include/opu_regs.h": c_header(),
        "runtime/include/opu_machine.h": machine_header(),
        "runtime/src/opu_tables.h": tables_header(),
    }
    for name in spec_names():
        spec = load_hw(name)
        files[f"docs/pictures/{name}.svg"] = draw_svg(spec)
        if spec.build:
            files |= {f"rtl_sim/gen/{name}/{file}": text for file, text in sv_files(spec).items()}
    return files


if __name__ == "__main__":
    raise SystemExit(write_generated(lambda _: generated_files()))
