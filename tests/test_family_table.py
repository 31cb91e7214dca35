"""The table of supported families: each "yes" is a family for which the test of its column runs."""

from __future__ import annotations

import ast
from pathlib import Path

from tiny_families import FAMILIES

from cxrlab.models.hf.families import all_families

TESTS = Path(__file__).parent
# Column of docs/checkpoints.md → file and test, which runs for every row of FAMILIES.
EVIDENCE = {
    "`generate`": ("models/hf/test_wrapper_families.py", "test_generation_in_a_batch_is_generation_alone"),
    "attack gradient": ("models/hf/test_wrapper_families.py", "test_a_batch_is_its_images_one_by_one"),
    "`train finetune`": (
        "training/test_finetune_families.py", "test_the_loss_falls_and_the_adapter_reloads_in_plain_libraries",
    ),
    "adapter in plain PEFT": (
        "training/test_finetune_families.py", "test_the_loss_falls_and_the_adapter_reloads_in_plain_libraries",
    ),
    "exact resume": ("training/test_finetune_families.py", "test_a_killed_training_ends_with_the_same_bytes"),
    "`prefer train`": ("preference/test_prefer_families.py", "test_dpo_moves_the_margin"),
}  # fmt: skip


def table() -> list[list[str]]:
    lines = (TESTS.parent / "docs" / "checkpoints.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| `model_type`"))
    found = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_cell_is_that_of_a_test() -> None:
    header, _, *rows = table()
    assert header == ["`model_type`", *EVIDENCE]
    declared = {name for family in all_families() for name in family.model_types}
    assert {row[0].strip("`") for row in rows} == declared >= set(FAMILIES)
    for name, *cells in rows:
        assert set(cells) == ({"yes"} if name.strip("`") in FAMILIES else {"–"})


def test_the_tests_behind_the_columns_run_for_every_family() -> None:
    """Parametrised by FAMILIES, directly or by a fixture."""
    for file, name in EVIDENCE.values():
        tree = ast.parse((TESTS / file).read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        used, waiting = set(), {name}
        while waiting:
            used |= waiting
            takes = {argument.arg for one in waiting for argument in functions[one].args.args}
            waiting = takes & functions.keys() - used
        decorators = " ".join(ast.unparse(one) for each in used for one in functions[each].decorator_list)
        assert "('family', FAMILIES)" in decorators or "params=FAMILIES" in decorators
        assert "skip" not in decorators
