"""What README, CONTRIBUTING, CHANGELOG and docs/ name is there: files, options, names, links."""

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from opu_fuse.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

# Folders whose files a page calls by their bare names; opu_fuse/ and the project's own are for all.
FOLDERS = {
    "cosimulation.md": ("rtl_sim/project", "rtl_sim/tb", "rtl_sim/gen/opu-tiny"),
    "host-kernels.md": tuple(
        f"opu_fuse/host/{name}" for name in ("build/linalg", "build/steps", "run")
    ),
    "libopu.md": ("runtime/include",),
    "models.md": ("opu_fuse/frontend", "examples/digits"),
    "native-engine.md": ("runtime/src",),
    "run-on-a-board.md": ("runtime/include",),
    "scheduling.md": ("opu_fuse/schedule",),
    "testing.md": ("tests/fuzz",),
    "tutorial.md": ("examples/digits",),
    "ulx3s.md": ("rtl_sim/litex",),
    "your-model.md": ("examples/digits",),
}
# Files that are not in the project. Names in capitals (OUT.opu) stand for any file and need no row.
FOREIGN_FILES = {
    "program-file.md": {  # members of a program file
        "manifest.json", "spec.yaml", "dram.bin", "program.bin", "runtime.bin", "program.asm",
        "qdq.onnx", "fused.onnx", "name.opu", "host/NNN.M.kernel.json", "host/NNN.M.onnx",
    },
    "CHANGELOG.md": {"runtime.bin"},
    "decisions.md": {"runtime.bin"},
    "host-kernels.md": {"runtime.bin"},
    "litex.md": {"boot.json"},  # of LiteX
    "onnxruntime.md": {"dram.bin"},
    "run-on-a-board.md": {"runtime.bin"},
    "testing.md": {"find.txt", "graph.txt", "inputs.npz", "machine.yaml", "model.onnx"},  # a find
}  # fmt: skip
FOREIGN_FOLDERS = {".venv", "out", "sim_build"}  # made by commands
# git's, gcc's, pip's; dask's, openFPGALoader's
FOREIGN_OPTIONS = {"--short", "--specs", "--no-deps"} | {
    f"--{name}" for name in ("nworkers", "nthreads", "port", "host", "no-dashboard", "board")
}
FOREIGN_NAMES = {"x_QuantizeLinear_Output", "float8_"}  # ONNX Runtime's, ml_dtypes'
FOREIGN_NAMES |= {"advanced_parameters", "activations_quantization_params"}  # NNCF's
FOREIGN_NAMES |= {"FAKELY_QUANT"}  # MCT's
FOREIGN_NAMES |= {"resolve_model_data_config", "output_quant"}  # timm's, Brevitas'
FOREIGN_NAMES |= {"sequence_length", "return_tensors"}  # Optimum's, those of transformers
KEYS_OF_MODELS = {"opu_fuse.source", "opu_fuse.skip_optimization"}

FILE = re.compile(
    r"(?<![\w./<>*…-])[\w./-]+\.(?:py|md|yaml|sv|h|cpp|json|onnx|npz|opu|bin|asm|toml|txt|ipynb)\b(?![\w(])"
)
FOLDER = re.compile(r"(?<![\w./<>*…-])[\w.][\w./-]*/(?=$|[\s,])")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def code_of(text):
    """What stands in backticks, blocks included."""
    return re.findall(r"^```.*\n((?:.*\n)*?)```$|`([^`\n]+)`", text, flags=re.MULTILINE)


def inline(page):
    return [short for _, short in code_of(TEXTS[page.name]) if short]


def lines_of_code(page):
    return [
        line for block, short in code_of(TEXTS[page.name]) for line in (block or short).split("\n")
    ]


def is_there(name, page):
    places = ["", "opu_fuse", "docs", *FOLDERS.get(page.name, ())]
    return any((ROOT / place / name).exists() for place in places)


@EACH_PAGE
def test_files_are_there(page):
    named = {name for code in inline(page) for name in [*FILE.findall(code), *FOLDER.findall(code)]}
    foreign = FOREIGN_FILES.get(page.name, set())
    missing = {
        name
        for name in named - foreign
        if not name.rpartition("/")[2].partition(".")[0].isupper()
        and name.split("/")[0] not in FOREIGN_FOLDERS
        and not is_there(name, page)
    }
    assert not missing, sorted(missing)
    assert foreign <= named, "an exception that the page no longer needs"


def verbs(command=None, words=()):
    """Words of a command -> its options."""
    command = command or typer.main.get_command(app)
    yield words, {"--help"} | {o for p in command.params for o in p.opts if o.startswith("-")}
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, (*words, name))


VERBS = dict(verbs())


def verb_of(words):
    """The longest command that these words begin with."""
    return next(v for n in (2, 1, 0) if (v := tuple(words[:n])) in VERBS)


@EACH_PAGE
def test_commands_have_the_options_named(page):
    for line in lines_of_code(page):
        for call in re.findall(r"(?<![\w/.-])opu-fuse ([^#|]*)", line.replace("\\|", "/")):
            words = re.findall(r"\S+", call)
            verb = verb_of(words)
            assert verb or words[0] == "…", line
            assert set(OPTION.findall(call)) <= VERBS[verb], line


def test_the_readme_names_every_command():
    named = set(re.findall(r"^\| `opu-fuse (\w+)` \|", TEXTS["README.md"], flags=re.MULTILINE))
    assert named == {words[0] for words in VERBS if words}


def test_the_messages_of_troubleshooting_are_in_the_sources():
    files = [p for folder in ("opu_fuse", "rtl_sim") for p in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    known = " ".join(" ".join(str(n.value).split()) for n in nodes if isinstance(n.value, str))
    rows = re.findall(r"^\| `(.+?)`(?: about .+?)? \| ", TEXTS["troubleshooting.md"], flags=re.M)
    parts = {part.strip() for row in rows for part in row.split("…") if len(part.strip()) > 3}
    assert len(parts) > 50
    assert not [part for part in sorted(parts) if part not in known]


def test_options_named_alone_are_options_of_something():
    scripts = [
        path
        for name in ("benchmarks", "examples", "rtl_sim", "rtl_sim/litex")
        for path in ROOT.glob(f"{name}/*.py")
    ]
    scripts += [ROOT / "tests/conftest.py", ROOT / "tests/fuzz/__main__.py"]
    sources = [path.read_text(encoding="utf-8") for path in scripts]
    known = {o for options in VERBS.values() for o in options} | FOREIGN_OPTIONS
    known |= {f"--{o}" for text in sources for o in re.findall(r'"--([a-z-]+)"', text)}
    wrong = {
        f"{page.name}: {option}"
        for page in PAGES
        for line in lines_of_code(page)
        for option in OPTION.findall(line)
        if option not in known
    }
    assert not wrong, sorted(wrong)


@EACH_PAGE
def test_names_of_the_package_are_there(page):
    for name, call in re.findall(r"\b(opu_fuse(?:\.\w+)+)(\(?)", "\n".join(inline(page))):
        found = import_module("opu_fuse")
        for part in name.split(".")[1:] if name not in KEYS_OF_MODELS else ():
            if not hasattr(found, part):
                import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)
        assert callable(found) or not call, name


def test_identifiers_are_somewhere_in_the_sources():
    folders = ("opu_fuse", "packages", "rtl_sim", "runtime", "tests", "hw_specs", "benchmarks")
    sources = [
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.*"))
        if path.suffix in {".py", ".sv", ".c", ".h", ".yaml"} and path != Path(__file__)
    ]
    known = {word for text in sources for word in re.findall(r"[A-Za-z_]\w*", text)}
    wrong = {
        f"{page.name}: {word}"
        for page in PAGES
        if "<!-- Generated" not in TEXTS[page.name]
        and page.name != "CHANGELOG.md"  # names what is gone
        for code in inline(page)
        for word in re.findall(r"(?<![\w*/])[A-Za-z]\w*_\w+(?![\w*])", code)
        if word not in known | FOREIGN_NAMES
    }
    assert not wrong, sorted(wrong)


# Files for a new module, by hand; these two are written by `make generate` and by the fit of areas.
MOST_FILES_FOR_A_MODULE = 15
WRITTEN_BY_TOOLS = {"opu_fuse/units/params.py", "opu_fuse/hw/area/coefficients.py"}


def test_the_page_about_modules_names_the_files_that_a_module_needs():
    naming = {
        str(path.relative_to(ROOT))
        for folder in ("opu_fuse", "rtl_sim/rtl", "rtl_sim/benches", "runtime/src", "hw_specs")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".sv", ".c", ".yaml"}
        and "prelu" in path.read_text(encoding="utf-8").lower()
    }
    assert naming >= WRITTEN_BY_TOOLS, "the example is found"
    page = TEXTS["adding-a-module.md"]
    table = page[page.index("| file | content |") :]
    listed = [
        file if (ROOT / file).is_file() else f"opu_fuse/{file}"
        for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
        for file in re.findall(r"`(.+?)`", row)
    ]
    assert sorted(listed) == sorted(naming - WRITTEN_BY_TOOLS)
    assert len(listed) <= MOST_FILES_FOR_A_MODULE


def test_targets_of_make_are_there():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    named = {
        target
        for page in PAGES
        for line in lines_of_code(page)
        for target in re.findall(r"^(?:\$ )?make ([a-z][a-z-]*)", line)
    }
    assert named <= targets


def anchors(text):
    """Of all headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@EACH_PAGE
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page.name]):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file) if file else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), target


@EACH_PAGE
def test_rows_have_the_cells_of_their_table(page):
    cells = 0
    for line in re.sub(r"^```.*?^```", "", TEXTS[page.name], flags=re.S | re.M).splitlines():
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert line.endswith("|") or not found, line
        assert not (cells and found) or cells == found, line
        cells = found


def test_every_page_is_reached_from_the_contents():
    links = set(re.findall(r"\]\(([\w-]+\.md)\)", TEXTS["index.md"]))
    assert links == {page.name for page in PAGES if page.parent.name == "docs"} - {"index.md"}
    assert "](docs/index.md)" in TEXTS["README.md"]


def test_every_page_stands_once_in_the_contents_of_the_site():
    lists = re.findall(r"^```\{toctree\}\n((?:.*\n)*?)```$", TEXTS["index.md"], flags=re.M)
    entries = [line for part in lists for line in part.splitlines() if line and line[0] != ":"]
    named = [entry.partition("<")[2].strip("<>") or entry for entry in entries]
    pages = {os.path.relpath(page, ROOT / "docs").removesuffix(".md") for page in PAGES}
    assert sorted(named) == sorted(pages - {"index"})


@pytest.mark.nightly
def test_the_site_is_made_without_a_warning(tmp_path):
    (line,) = re.findall(r"^\t\$\(BIN\)/python (-m sphinx .*)$", MAKEFILE, flags=re.MULTILINE)
    *command, folder = [sys.executable, *line.split()]
    done = subprocess.run(
        [*command, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert folder == "out/site"
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / page.relative_to(ROOT)).with_suffix(".html").is_file() for page in PAGES)
    api = (tmp_path / "docs/python.html").read_text(encoding="utf-8")
    named = ("compile", "Program.run", "bundle.result.RunResult", "cosim.stall")
    assert all(f'id="opu_fuse.{name}"' in api for name in named)


# Wordings that readers had to read twice, in pages, help and messages.
REPLACED = (
    *("in a checkout", "one fixed pipeline of operators", "prove, write the program"),
    *("what ONNX Runtime would report is switched off", "names lose their middle"),
    *("goes on where it was killed", "several programs side by side", "to click through"),
    *("Words you do not know stand", "its groups cut into tiles", "a map that nobody else reads"),
    *("ways to wire it that were taken over", "take over opu-tiny and write down"),
    *("How the compiler is made", "quantiser rounds nothing between", "noise stands in"),
    *("Where images come in numbers", "data could pass the pool on the way", "test of the night"),
    *("its colour says which engine", "words typed above it", "which numbers of a map its scale"),
    *("what rounded weights add", "bring the channels between two layers", "not shown by the run"),
    *("allow networks this many times", " gives acc", "{len(partition.host)} host operators"),
)


def test_wordings_that_were_replaced_do_not_return():
    sources = [*(ROOT / "opu_fuse").rglob("*.py"), *PAGES]
    found = [
        f"{path.relative_to(ROOT)}: {wording}"
        for path in sources
        for text in [" ".join(path.read_text(encoding="utf-8").split())]
        for wording in REPLACED
        if wording in text
    ]
    assert not found


def test_the_glossary_is_in_order():
    terms = re.findall(r"^\| ([^|]+) \|", TEXTS["glossary.md"], flags=re.MULTILINE)[1:]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == len(set(terms)) > 50


def test_the_layout_of_the_readme_is_that_of_the_project():
    rows = TEXTS["README.md"].split("## Layout")[1].split("## ")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)/`", row.split(" | ")[0])}
    made = FOREIGN_FOLDERS | {"build", "dist", "__pycache__"}
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    assert named == folders - made
