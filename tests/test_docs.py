"""What the documents say is what the program does."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import yaml
from tables import every_row

import cxrlab
from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named
from cxrlab.core.registry import load_reference
from cxrlab.core.vocabulary import DRAWN
from cxrlab.models.model_registry import KINDS

ROOT = Path(__file__).resolve().parents[1]
# What they say was true when it was written.
HISTORY = ("CHANGELOG.md", "LOG.md", "results.md")
# Of a script whose command stands earlier in the same sentence.
SCRIPT_FLAGS = ("--sizes",)
# Files of others, which no command of ours names.
FOREIGN = ("biomedclipcxr_518.json",)
PROMPTS = tuple(yaml.safe_load((ROOT / "src" / "cxrlab" / "models" / "prompts.yaml").read_text()))
CONFIGS = [file.read_text() for file in (ROOT / "configs").rglob("*.yaml")]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "src" / "cxrlab" / "README.md",
        ROOT / "experiments" / "LOG.md",
    ]
)


def commands() -> list[tuple[str, str]]:
    """Every `cxrlab …` line of a code block, with the page that shows it."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```[a-z]*\n(.*?)```", page.read_text(), re.S):
            found += [(page.name, line) for line in block.splitlines() if line.startswith("cxrlab ")]
    return found


def test_readme_begins_with_the_two_commands() -> None:
    """The first code block is `make tour` and `make test`, and the Makefile has both."""
    block = re.search(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block[1].strip().splitlines()] == ["make tour", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in ("tour", "test", "setup", "check", "bench"))


def test_there_are_commands_to_check() -> None:
    """Guards the test below against a README without code blocks."""
    assert len(commands()) >= 6


@every_row(("page", "line"), commands())
def test_every_documented_command_is_one_that_parses(page: str, line: str) -> None:
    """Command, flags and values are accepted; nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    name = command_named(words)
    assert name is not None, f"{page} shows an unknown command: {line}"
    CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target)).parse(words[len(name.split()) :])


@every_row("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Relative links and pictures exist, and so does the heading that a link names."""
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = page.parent / link if link else page
        if link.startswith(("http:", "https:")):
            continue
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        assert not anchor or anchor in headings(target), f"{page.name} links to {link}#{anchor}, which is no heading"


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_kind_of_model_is_documented_and_no_page_has_a_placeholder() -> None:
    """Of the addresses, `http` stands for both."""
    text = "\n".join(page.read_text() for page in PAGES if page.name not in HISTORY)
    lost = [kind for kind in KINDS if f"`{kind}:" not in text and kind != "https"]
    lost += [name for name in PROMPTS if name not in text and not any(name in read for read in CONFIGS)]
    assert not lost and not re.search(r"@@\w*@@", text)


@every_row("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_text_exist(page: Path) -> None:
    """A file in backticks with a folder is in the package or the repository."""
    for name in re.findall(r"`([\w./]+/[\w.]+\.(?:py|md|yaml))`", page.read_text()):
        places = [ROOT / name, ROOT / "src" / "cxrlab" / name]
        assert any(place.exists() for place in places), f"{page.name} names {name}, which does not exist"


def test_tests_named_in_text_exist() -> None:
    """`FILE::TEST` in backticks is a test of this repository."""
    named = [name for page in PAGES for name in re.findall(r"`(tests/[\w/]+\.py::\w+)`", page.read_text())]
    wrong = [name for name in named if not re.search(rf"^def {name.split('::')[1]}\(", _test_file(name), re.MULTILINE)]
    assert named and not wrong


def _test_file(name: str) -> str:
    file = ROOT / name.split("::")[0]
    return file.read_text() if file.is_file() else ""


def flags_by_command() -> dict[str, frozenset[str]]:
    """Every flag of every command; also the beginning of a group of flags, such as `--loading.connection`."""
    found = {}
    for name, row in COMMANDS.items():
        parser = CommandLine(name, row, load_reference(row.target)).parser
        flags = {flag for action in parser._actions for flag in action.option_strings}
        groups = {flag[: dot.start()] for flag in flags for dot in re.finditer(r"\.", flag)}
        found[name] = frozenset(flags | groups)
    return found


def test_flags_and_commands_named_in_text_exist() -> None:
    """In backticks: `cxrlab COMMAND … --flag` has the flag, and `--flag` alone is one of some command or script."""
    known = flags_by_command()
    every = frozenset().union(*known.values())
    wrong = []
    for page in (page for page in PAGES if page.name not in HISTORY):
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            script = re.search(r"python ((?:experiments|benchmarks)/\w+\.py)", code)
            named = command_named(code.split()[1:]) if code.startswith("cxrlab ") else None
            group = any(command.startswith(f"{code.removeprefix('cxrlab ')} ") for command in known)
            if re.match(r"cxrlab [a-z]", code) and named is None and not group:
                wrong.append(f"{page.name}: {code}")
            for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", code):
                if script is not None:
                    there = flag in (ROOT / script[1]).read_text()
                else:
                    there = flag in (known[named] if named else every) or flag in SCRIPT_FLAGS
                if not there:
                    wrong.append(f"{page.name}: {code}: {flag}")
    assert not wrong


def test_other_files_and_variables_named_in_text_exist() -> None:
    """A bare `name.py` stands in the repository; a `name.json` that a command writes, and a variable, in the source."""
    names = {path.name for folder in ("src", "tests", "experiments", "benchmarks", "examples", "configs", "docs")
             for path in (ROOT / folder).rglob("*.*")}  # fmt: skip
    source = "\n".join(
        path.read_text() for path in [*(ROOT / "src").rglob("*.py"), ROOT / "Makefile", ROOT / ".ci/run"]
    )
    wrong = []
    for page in (page for page in PAGES if page.name not in HISTORY):
        text = page.read_text()
        wrong += [f"{page.name}: {name}" for name in re.findall(r"`(\w+\.py)`", text) if name not in names]
        written = re.findall(r"`(?:[\w.]+/)*(\w+\.(?:jsonl|json|sqlite|npz))`", text)
        wrong += [f"{page.name}: {name}" for name in written if name not in source and name not in names.union(FOREIGN)]
        wrong += [f"{page.name}: {name}" for name in re.findall(r"`(CXRLAB_[A-Z_]+)`", text) if name not in source]
    assert not wrong


def test_the_changelog_has_an_entry_for_this_version() -> None:
    """A changelog that nobody is made to update dies."""
    assert f"\n## {cxrlab.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_log_has_a_figure_for_every_drawn_finding() -> None:
    """The learnability table lists all of them, none below 0.6 at 224 px."""
    text = (ROOT / "experiments" / "LOG.md").read_text()
    for name in DRAWN:
        row = re.search(rf"^\| {re.escape(name)} \| [\d.]+ \| ([\d.]+) \|", text, re.M)
        assert row is not None, f"no learnability figure for {name}"
        assert float(row[1]) >= 0.6


def test_the_hours_in_the_docs_are_those_of_the_script() -> None:
    """The table of docs/scale.md is printed, not typed; the counts behind it are those of the audit's settings."""
    script = runpy.run_path(str(ROOT / "experiments" / "scale_arithmetic.py"))
    assert script["markdown"]() in (ROOT / "docs" / "scale.md").read_text()
    assert script["gradients"](["fgsm", "pgd", "apgd", "noise"], 20, 4) == 4 + 80 + 80
    work = script["Work"]("work", 9, 3600.0, "")
    assert [round(work.hours(gpus) - script["STARTUP_S"] / 3600, 9) for gpus in (1, 8, 64)] == [9, 2, 1]
