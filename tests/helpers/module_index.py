"""The list of modules in src/cxrlab/README.md, made from their docstrings: `python tests/helpers/module_index.py`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "cxrlab"
INDEX = PACKAGE / "README.md"
HEADING = "## Modules\n"


def module_index() -> str:
    """For each package, its modules with the first sentence of their docstrings."""
    lines = []
    for package in sorted(entry for entry in PACKAGE.iterdir() if (entry / "__init__.py").exists()):
        lines.append(f"\n### {package.name}\n\n")
        for file in sorted(package.rglob("*.py")):
            if file.stem != "__init__":
                text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].split())
                sentence = re.split(r"(?<=[.])\s+(?=[A-Z`])", text)[0].rstrip(".")
                end = "" if sentence.endswith("?") else "."
                lines.append(f"- `{file.relative_to(PACKAGE)}`: {sentence}{end}\n")
    return "".join(lines)


def main() -> None:
    before = INDEX.read_text().partition(HEADING)[0].rstrip("\n")
    INDEX.write_text(f"{before}\n\n{HEADING}{module_index()}")


if __name__ == "__main__":
    main()
