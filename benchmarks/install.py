"""Cost of an install without extras: packages, megabytes, whether torch is installed, seconds to the first scores.

    python benchmarks/install.py [--plan] [--index URL]

Installs a copy of the project without extras into a new environment in a temporary folder, which needs a package index.
`--plan` only prints the targets. The comparison is RadEval 2.2.1, measured separately: its install has 143 packages and
6.3 GB, and replaces torch.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("pyproject.toml", "README.md", "constraints.txt", "src")
PEER_PACKAGES, PEER_MB = 143, 6300
MOST_PACKAGES, MOST_MB, MOST_S = 35, 400, 1.5  # targets
SCORE = """
import cxrlab
references = [f"The heart is mildly enlarged. Small left pleural effusion, {k} cm. No pneumothorax." for k in range(10)]
candidates = [f"Heart size is normal. No pleural effusion or pneumothorax. Tube {k} cm above the carina." for k in range(10)]
print(len(cxrlab.score(references, candidates).metrics))
"""


def install(folder: Path, index: str | None) -> Path:
    """Make the environment and install the project into it; returns its Python interpreter."""
    source = folder / "source"
    source.mkdir()
    for name in PARTS:  # a copy, because building writes next to the source
        part = ROOT / name
        if part.is_dir():
            shutil.copytree(part, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(part, source / name)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "-c", str(source / "constraints.txt")]
    run([str(python), "-m", "pip", "install", *options, *(["--index-url", index] if index else []), str(source)])
    return python


def run(command: list[str]) -> str:
    """Output of a command; exits with the end of its error output if it fails."""
    # Not in the project's folder, where `import cxrlab` could find the source instead of the install.
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        raise SystemExit(f"Not measured: '{' '.join(command[:4])} …' failed with\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def seconds(python: Path, code: str, repeats: int = 5) -> float:
    """Best wall time of a new process that runs the code, including the start of the interpreter."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run([str(python), "-c", code])
        times.append(time.perf_counter() - start)
    return min(times)


def packages(python: Path) -> list[str]:
    """Installed packages without pip and setuptools, which a new environment already has."""
    listed = json.loads(run([str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]))
    return sorted(row["name"] for row in listed if row["name"] not in ("pip", "setuptools"))


def megabytes(folder: Path) -> float:
    """Size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def main() -> None:
    """Install, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plan", action="store_true", help="print the targets and stop")
    parser.add_argument("--index", help="package index to install from; default: pip's own setting")
    args = parser.parse_args()
    print(f"target: under {MOST_PACKAGES} packages and {MOST_MB} MB, no torch, 10 pairs in under {MOST_S} s")
    if args.plan:
        return
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        python = install(Path(name), args.index)
        installed, size = packages(python), megabytes(Path(name) / "venv")
        print(f"installed in {time.perf_counter() - start:.0f} s: {', '.join(installed)}")
        print(f"packages:     {len(installed):6d}   RadEval has {PEER_PACKAGES / len(installed):.1f} times as many")
        print(f"megabytes:    {size:6.0f}   RadEval takes {PEER_MB / size:.0f} times as much; pip included")
        print(f"torch:        {'yes' if 'torch' in installed else 'no':>6s}")
        print(f"bare python:  {seconds(python, 'pass'):6.2f} s")
        print(f"import:       {seconds(python, 'import cxrlab'):6.2f} s")
        metrics = run([str(python), "-c", SCORE]).strip()
        print(f"10 pairs:     {seconds(python, SCORE):6.2f} s   import cxrlab included; {metrics} metrics with floors")


if __name__ == "__main__":
    main()
