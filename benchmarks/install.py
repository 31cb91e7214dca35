"""What a plain install costs: packages, megabytes, whether torch came along, seconds to the first scores.

    python benchmarks/install.py [--plan] [--index URL]

Makes a fresh environment in a temporary folder and installs a copy of the project without extras into it;
that needs a package index. `--plan` only prints what would be measured. The peer is RadEval 2.2.1, whose
install was measured on another day: 143 packages, 6.3 GB and a replaced torch.
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
MOST_PACKAGES, MOST_MB, MOST_S = 35, 400, 1.5  # what the project promises to stay under
SCORE = """
import cxrlab
told = [f"The heart is mildly enlarged. Small left pleural effusion, {k} cm. No pneumothorax." for k in range(10)]
said = [f"Heart size is normal. No pleural effusion or pneumothorax. Tube {k} cm above the carina." for k in range(10)]
print(len(cxrlab.score(told, said).metrics))
"""


def install(folder: Path, index: str | None) -> Path:
    """Make the environment and install the project into it; returns its python."""
    source = folder / "source"
    source.mkdir()
    for name in PARTS:  # a copy: building writes beside the source
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
    """Its output; a command that fails ends the measurement with its last words."""
    # Elsewhere than in the project's folder, where `import cxrlab` could find the source instead of the install.
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        raise SystemExit(f"not measured: '{' '.join(command[:4])} …' failed with\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def seconds(python: Path, code: str, repeats: int = 5) -> float:
    """The best wall time of a fresh process that runs the code, start of the interpreter included."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run([str(python), "-c", code])
        times.append(time.perf_counter() - start)
    return min(times)


def packages(python: Path) -> list[str]:
    """What was installed, pip and setuptools aside: a new environment has those already."""
    listed = json.loads(run([str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]))
    return sorted(row["name"] for row in listed if row["name"] not in ("pip", "setuptools"))


def megabytes(folder: Path) -> float:
    """Of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def main() -> None:
    """Install, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plan", action="store_true", help="print what would be measured and stop")
    parser.add_argument("--index", help="package index to install from; pip's own setting when left out")
    args = parser.parse_args()
    print(f"promised: under {MOST_PACKAGES} packages and {MOST_MB} MB, no torch, 10 pairs under {MOST_S} s")
    if args.plan:
        return
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        python = install(Path(name), args.index)
        installed, size = packages(python), megabytes(Path(name) / "venv")
        print(f"installed in {time.perf_counter() - start:.0f} s: {', '.join(installed)}")
        print(f"packages:     {len(installed):6d}   RadEval has {PEER_PACKAGES / len(installed):.1f} times as many")
        print(f"megabytes:    {size:6.0f}   RadEval takes {PEER_MB / size:.0f} times as much; pip's own counted in")
        print(f"torch:        {'there' if 'torch' in installed else 'no':>6s}")
        print(f"bare python:  {seconds(python, 'pass'):6.2f} s")
        print(f"import:       {seconds(python, 'import cxrlab'):6.2f} s")
        metrics = run([str(python), "-c", SCORE]).strip()
        print(f"10 pairs:     {seconds(python, SCORE):6.2f} s   import cxrlab included; {metrics} metrics with floors")


if __name__ == "__main__":
    main()
