"""Pages as tests read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cxrlab.render.page import write_page


def page_of(*runs: Path, **settings: Any) -> str:
    """The HTML of a page with white space collapsed and single classes without quotes, as tests look for it."""
    return plain(write_page(list(runs), **settings).read_text())


def plain(html: str) -> str:
    """HTML in one form, however a template is laid out."""
    html = re.sub(r">[ ]*\n[ \n]*<", "><", html)
    html = re.sub(r"[ \n]+", " ", html)
    html = re.sub(r'class="([\w-]+)"', r"class=\1", html)
    return html.replace("&#39;", "'").replace("&#34;", '"').replace("\N{NO-BREAK SPACE}", "&nbsp;")
