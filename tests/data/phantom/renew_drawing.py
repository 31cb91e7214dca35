"""Write `drawing.json` and `drawing_lateral.json` anew, after `DRAWING` or `LATERAL_DRAWING` was raised on purpose.

python tests/data/phantom/renew_drawing.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "helpers"))

from phantom_fingerprint import fingerprint, lateral_fingerprint  # noqa: E402

if __name__ == "__main__":
    (HERE / "drawing.json").write_text(json.dumps(fingerprint(), indent=1) + "\n")
    (HERE / "drawing_lateral.json").write_text(json.dumps(lateral_fingerprint(), indent=1) + "\n")
