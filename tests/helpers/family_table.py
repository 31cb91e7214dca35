"""The table of model families in docs/models.md, made from the tests that run: `python tests/helpers/family_table.py`."""

from __future__ import annotations

import ast
from pathlib import Path

from tiny_families import FAMILIES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "models.md"
BEGIN, END = "<!-- families: begin -->\n", "<!-- families: end -->\n"
SEVERAL, CACHED = "several images", "cached features"
# Column → file and test; a cell is "yes" if the test runs for the family, or "refused" or "none" if it shows that.
COLUMNS = {
    "`generate`": ("models/hf/test_wrapper_families.py", "test_generation_in_a_batch_is_generation_alone"),
    "attack gradient": ("models/hf/test_wrapper_families.py", "test_a_batch_is_its_images_one_by_one"),
    "SFT": ("training/test_finetune_families.py", "test_the_loss_falls_and_the_adapter_reloads_in_plain_libraries"),
    "whole model, vision encoder": (
        "training/test_finetune_families.py",
        "test_whole_models_and_trained_vision_encoders",
    ),
    "LoRA reload": (
        "training/test_finetune_families.py",
        "test_the_loss_falls_and_the_adapter_reloads_in_plain_libraries",
    ),
    "exact resume": ("training/test_finetune_families.py", "test_a_killed_training_ends_with_the_same_bytes"),
    CACHED: ("training/test_finetune_families.py", "test_cached_features_give_the_losses_of_a_running_encoder"),
    "DPO": ("preference/test_prefer_families.py", "test_dpo_moves_the_margin"),
    SEVERAL: ("models/hf/test_several_images.py", "test_several_images_in_one_prompt"),
}


def families_of_test(file: str, name: str) -> set[str]:
    """The families that a test runs for, by its parameters or those of the fixtures that it takes."""
    tree = ast.parse((TESTS / file).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    used, waiting = set(), {name}
    while waiting:
        used |= waiting
        taken = {argument.arg for one in waiting for argument in functions[one].args.args}
        waiting = taken & functions.keys() - used
    decorators = [one for each in used for one in functions[each].decorator_list]
    if any("skip" in ast.unparse(one) for one in decorators):
        return set()
    found: set[str] = set()
    for call in decorators:
        if not isinstance(call, ast.Call):
            continue
        given = [argument.value for argument in call.keywords if argument.arg == "params"]
        if len(call.args) > 1 and ast.unparse(call.args[0]) == "'family'":
            given.append(call.args[1])
        for value in given:
            found |= set(FAMILIES) if ast.unparse(value) == "FAMILIES" else set(ast.literal_eval(value))
    return found


def family_table() -> str:
    """One row per family that the package declares, sorted by name."""
    from cxrlab.models.hf.families import all_families, find_family

    tested = {column: families_of_test(*test) for column, test in COLUMNS.items()}
    lines = [f"| `model_type` | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name in sorted(name for family in all_families() for name in family.model_types):
        family, shown = find_family(name), dict.fromkeys(COLUMNS, "yes")
        if not family.several_images:
            shown[SEVERAL] = "refused"
        if family.feature_source is None and name != "llava":  # a LLaVA has a cache of its own
            shown[CACHED] = "none"
        cells = [shown[column] if name in families else "–" for column, families in tested.items()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{family_table()}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
