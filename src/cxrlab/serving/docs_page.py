"""The page at /docs: what the server takes and gives, in one HTML file that loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

# The browser is told as well: no script, nothing from elsewhere.
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f3f3f3;padding:1rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2rem .6rem;text-align:left;vertical-align:top}"
)
_EXAMPLE = """curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "model": "NAME OF /v1/models",
  "messages": [{"role": "user", "content": [
    {"type": "text", "text": "Dyspnea."},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}]}]
}'"""


def docs_page(described: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = described["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
        "<h2>Example</h2>",
        f"<pre>{escape(_EXAMPLE)}</pre>",
        "<h2>Paths</h2>",
        *_paths(described["paths"]),
        "<h2>Fields</h2>",
        *(_fields(name, schema) for name, schema in sorted(described["components"]["schemas"].items())),
    ]
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _paths(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            rows = "".join(
                f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td></tr>"
                for status, answer in sorted(operation["responses"].items())
            )
            head = f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation['summary'])}</p>"
            yield f"{head}<table><tr><th>status</th><th></th></tr>{rows}</table>"


def _fields(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(key)}</code></td><td>{escape(_kind(field))}{' (needed)' if key in needed else ''}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for key, field in schema.get("properties", {}).items()
    )
    told = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{told}</p><table>{rows}</table>'


def _kind(field: Mapping[str, Any]) -> str:
    """The type of a field, in the words of JSON Schema."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "const" in field or "enum" in field:
        return " or ".join(repr(value) for value in field.get("enum", [field.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(map(_kind, field[several])))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    return str(field.get("type", "anything"))
