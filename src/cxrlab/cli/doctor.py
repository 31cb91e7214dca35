"""`cxrlab doctor`: what is installed, what is missing, how to get it."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns
from cxrlab.core.environment import BASE_INSTALL, extras, version

BASE = (
    "numpy", "pillow", "pydicom", "pylibjpeg", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg", "pylibjpeg-rle",
    "pyyaml", "jsonargparse", "docstring-parser", "rich",
)  # fmt: skip
_CONFLICTING = ("torchvision", "timm", "open_clip")  # a broken copy of one breaks transformers, which imports it
# Run in a process of its own: importing a broken build of torch may end the interpreter.
_TORCH = """
import json, torch
devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
mps = bool(getattr(torch.backends, "mps", None) and torch.backends.mps.is_available())
print(json.dumps({"version": torch.__version__, "devices": devices or (["mps"] if mps else ["cpu"]),
                  "threads": torch.get_num_threads()}))
"""


def doctor() -> Result:
    """Show what this machine can run: Python, packages, optional parts, device, threads and disk.

    The exit code is 1 when something is broken; an optional part that is not installed is not counted.
    """
    data = examine()
    torch, threads = data["torch"], data["threads"]
    rows = [
        ("cxrlab", data["cxrlab"] or "run from source"),
        ("python", data["python"]),
        ("platform", data["platform"]),
        ("disk free", f"{data['disk_free_gb']} GB"),
        ("threads", f"{threads['cores']} cores, OMP_WAIT_POLICY={threads['OMP_WAIT_POLICY']}"),
    ]
    if torch and "error" not in torch:
        rows.append(("torch", f"{torch['version']} on {', '.join(torch['devices'])}, {torch['threads']} threads"))
    rows += [(name, installed or "MISSING") for name, installed in data["packages"].items()]
    for name, extra in data["extras"].items():
        installed = ", ".join(f"{package} {found}" for package, found in extra["packages"].items() if found)
        missing = f"not installed; get it with: {extra['install']}"
        rows.append((f"[{name}]", installed if extra["complete"] else missing))
    problems = [f"problem: {problem}" for problem in data["problems"]] or ["everything that is installed works"]
    return Result("\n".join([columns(rows), "", *problems]), data, ok=not data["problems"])


def examine() -> dict[str, Any]:
    """What is installed, as plain values; `problems` lists what is broken, each with its remedy."""
    base = {name: version(name) for name in BASE}
    torch = _ask(_TORCH) if importlib.util.find_spec("torch") else None
    conflicts: dict[str, str | None] = {
        name: _ask(f"import {name}\nprint('{{}}')").get("error")
        for name in _CONFLICTING
        if importlib.util.find_spec(name)
    }
    problems = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        problems.append(f"Python {platform.python_version()} is not supported; use 3.11, 3.12, 3.13 or 3.14.")
    if missing := [name for name, installed in base.items() if installed is None]:
        problems.append(f"{', '.join(missing)} is missing; run: {BASE_INSTALL}")
    if torch is not None and "error" in torch:
        problems.append(f"torch does not import ({torch['error']}); run: pip install --force-reinstall torch")
    problems += [
        f"{name} does not import ({error}), and transformers and peft fail with it; cxrlab does not need it, run: "
        f"pip uninstall {name.replace('_', '-')}"
        for name, error in conflicts.items()
        if error is not None
    ]
    return {
        "cxrlab": version("cxrlab"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": base,
        "extras": {
            extra.name: {"complete": extra.complete, "packages": dict(extra.versions), "install": extra.command}
            for extra in extras()
        },
        "torch": torch,
        "threads": {
            "cores": os.cpu_count(),
            **{name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")},
        },
        "disk_free_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "conflicts": conflicts,
        "problems": problems,
    }


def _ask(code: str) -> dict[str, Any]:
    """The JSON that a script prints, run in a new process; `{"error": …}` when it fails."""
    try:
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        if answer.returncode == 0:
            found: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
            return found
        reason = answer.stderr.strip().splitlines()[-1:] or [f"exit code {answer.returncode}"]
        return {"error": reason[0]}
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
