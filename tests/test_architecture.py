"""Imports go downhill: this file holds the order of the packages and fails on a breach."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from module_index import HEADING, INDEX, module_index

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cxrlab"

# From top to bottom; packages on one line never import each other.
LAYERS = (
    ("cli",),
    ("studies",),
    ("serving",),
    ("preference", "robustness", "extraction"),
    ("training", "evaluation", "attacks"),
    ("data", "models", "metrics"),
    ("findings",),
    ("core",),
)
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
PACKAGES = {*LAYER, "render"}
LIGHT = ("core", "findings", "data", "metrics", "render", "cli")
HEAVY = {
    "torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers",
    "matplotlib", "fastapi", "uvicorn", "starlette", "pydantic", "httpx", "pyarrow", "openpyxl",
}  # fmt: skip
REFERENCE = re.compile(r"cxrlab(\.\w+)+:\w+")


def may_import(package: str, other: str) -> bool:
    """Whether `package` is above `other`; only cli and studies may import render, which may import only core."""
    if package == other:
        return True
    if package == "render":
        return other == "core"
    if other == "render":
        return package in ("cli", "studies")
    return LAYER[package] < LAYER[other]


@dataclass(frozen=True)
class Import:
    """One import found in a file: where, what, and whether it happens when the module is imported."""

    file: Path
    line: int
    module: str
    at_once: bool


def imports_of(file: Path, root: Path) -> Iterator[Import]:
    """Every import of a file, also in functions, TYPE_CHECKING blocks and `"module:attribute"` texts."""
    tree = ast.parse(file.read_text(), str(file))
    parts = ("cxrlab", *file.relative_to(root).with_suffix("").parts)
    later = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        or (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test))
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        for module in modules_of(node, parts):
            yield Import(file, getattr(node, "lineno", 0), module, id(node) not in later)


def modules_of(node: ast.AST, parts: tuple[str, ...]) -> list[str]:
    """Dotted names that one node imports; `from cxrlab import data` counts as `cxrlab.data`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = ".".join(parts[: len(parts) - node.level]) if node.level else ""
        stem = ".".join(part for part in (base, node.module) if part)
        return [f"{stem}.{alias.name}" for alias in node.names] if stem == "cxrlab" else [stem]
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and REFERENCE.fullmatch(node.value):
        return [node.value.partition(":")[0]]
    return []


def breaches(root: Path) -> list[str]:
    """Everything that breaks the order, one sentence each."""
    found = []
    for file in sorted(root.rglob("*.py")):
        inside = file.relative_to(root).parts
        if len(inside) == 1:
            continue  # `cxrlab/__init__.py` and `python -m cxrlab` are above every package
        package = inside[0]
        if package not in PACKAGES:
            found.append(f"{file}: '{package}' is not a package of the plan")
            continue
        for item in imports_of(file, root):
            top, _, rest = item.module.partition(".")
            other = rest.partition(".")[0]
            place = f"{file}:{item.line}"
            if top in HEAVY and item.at_once and package in LIGHT:
                found.append(
                    f"{place}: {package} imports {top} when it is imported; move it into the function that needs it"
                )
            if top != "cxrlab" or other == "__version__":
                continue
            if other not in PACKAGES:
                found.append(f"{place}: {package} imports '{item.module}' instead of a package")
            elif not may_import(package, other):
                found.append(f"{place}: {package} imports {other}, which is not below it")
    return found


def test_every_import_goes_downhill() -> None:
    assert breaches(PACKAGE) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    """A name that says nothing gathers everything."""
    assert [file for file in PACKAGE.rglob("*.py") if file.stem in ("utils", "util", "helpers", "misc")] == []


def test_the_package_index_equals_the_tree() -> None:
    listed = re.findall(r"^- `(\w+)`: \S", (PACKAGE / "README.md").read_text(), re.MULTILINE)
    packages = {entry.name for entry in PACKAGE.iterdir() if entry.is_dir() and entry.name != "__pycache__"}
    assert sorted(listed) == sorted(packages)


def test_the_module_index_equals_the_docstrings() -> None:
    """After a change: `python tests/helpers/module_index.py`."""
    assert INDEX.read_text().partition(HEADING)[2] == module_index()


PLANTED = [
    ("core", "from cxrlab.data.corpus import load_corpus", "core imports data"),
    ("core", "import cxrlab.cli.main", "core imports cli"),
    ("findings", "def late():\n    from cxrlab.models import model_registry", "findings imports models"),
    ("data", "from cxrlab import metrics", "data imports metrics"),
    ("data", "if TYPE_CHECKING:\n    from cxrlab.models.model_registry import load_model", "data imports models"),
    ("models", "from ..evaluation import generate", "models imports evaluation"),
    ("render", "from cxrlab.data.corpus import Corpus", "render imports data"),
    ("data", "from cxrlab.render.page import write_page", "data imports render"),
    ("data", "ROWS = {'x': 'cxrlab.studies.tour:run_tour'}", "data imports studies"),
    ("data", "from cxrlab import load_model", "instead of a package"),
    ("core", "import torch", "core imports torch"),
    ("cli", "from transformers import AutoModel", "cli imports transformers"),
    ("attic", "x = 1", "not a package"),
]


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the guard says of a copy of the tree with one bad file more for each case."""
    copy = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("copy") / "cxrlab")
    for number, (package, planted, _) in enumerate(PLANTED):
        (copy / package).mkdir(exist_ok=True)
        (copy / package / f"planted_{number}.py").write_text(planted + "\n")
    return breaches(copy)


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=[said for _, _, said in PLANTED])
def test_a_planted_breach_is_caught(caught: list[str], number: int) -> None:
    """The guard itself is tested: each bad file is named once, for the right reason."""
    reported = [sentence for sentence in caught if f"planted_{number}.py" in sentence]
    assert len(reported) == 1 and PLANTED[number][2] in reported[0]


@pytest.mark.parametrize(
    ("package", "planted"),
    [
        ("data", "def late():\n    import torch"),
        ("core", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("models", "import torch"),
        ("studies", "from cxrlab.render import page"),
        ("core", "from . import errors"),
    ],
)
def test_allowed_imports_pass(tmp_path: Path, package: str, planted: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "fine.py").write_text(planted + "\n")
    assert breaches(tmp_path) == []
