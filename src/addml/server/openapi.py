"""The table of endpoints, and the OpenAPI 3.1 document that is made of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from addml import __version__
from addml.server import CODES
from addml.server.row_requests import ARROW, CSV, JSON, MOST_REASONS, NDJSON

API = "/api/v1"
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path: what answers, and what is to be said of it."""

    method: str
    path: str
    answer: Answer
    summary: str
    returns: str  # a schema below, or a media type
    status: int = 200
    errors: Sequence[int] = ()
    query: Sequence[str] = ()  # names of parameters below
    body: str | None = None  # "rows" or "file"
    is_open: bool = False  # needs no token


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT, NUMBER, YES = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}
MAYBE_TEXT, ANYTHING = {"type": ["string", "null"]}, {"type": "object"}
PAGE = {"total": COUNT, "next": {"type": ["integer", "null"]}}
JOB = {
    "id": TEXT,
    "file": TEXT,
    "model": MAYBE_TEXT,
    "state": {"enum": ["waiting", "running", "done", "failed", "stopped"]},
    "progress": MAYBE_TEXT,
    "error": {"anyOf": [_ref("Problem"), {"type": "null"}]},
    "made": MAYBE_TEXT,
    "seconds": NUMBER,
}
MODEL = {"name": TEXT, "hash": TEXT, "noun": TEXT, "trained_rows": COUNT, "threshold": NUMBER, "decided_by": TEXT}
REASON = _object("column share words", column=TEXT, share=NUMBER, words=TEXT)
SCHEMAS = {
    "Problem": _object("code message", code=TEXT, message=TEXT),
    "Error": _object("error", error=_ref("Problem")),
    "Health": _object("status addml", status=TEXT, addml=TEXT),
    "Readiness": _object("ready models waiting", ready=YES, models=COUNT, waiting=COUNT),
    "ModelList": _object("models total next", models=_list(_object(" ".join(MODEL), **MODEL, columns=COUNT)), **PAGE),
    "Model": _object(" ".join(MODEL), **MODEL, columns=ANYTHING, usual=_list(ANYTHING)),
    "Scores": _object(
        "model model_hash threshold results ignored notes",
        model=TEXT,
        model_hash=TEXT,
        threshold=NUMBER,
        results=_list(
            _object("score is_anomaly reasons", score=NUMBER, is_anomaly=YES, probability=NUMBER, reasons=_list(REASON))
        ),
        ignored=_list(TEXT),
        notes=_list(TEXT),
    ),
    "JobList": _object("jobs total next", jobs=_list(_object(" ".join(JOB), **JOB)), **PAGE),
    "Job": _object(" ".join(JOB), **JOB, options=_list(_list(TEXT)), files=ANYTHING, summary={}),
    "Document": ANYTHING,
}
ROWS = _object(
    "rows",
    rows={"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}},
    reasons={"type": "integer", "minimum": 0, "maximum": MOST_REASONS},
    all=YES,
) | {"additionalProperties": False}
BODIES = {
    "rows": {JSON: {"schema": ROWS}} | {kind: {"schema": {"type": "string"}} for kind in (NDJSON, CSV, ARROW)},
    "file": {"application/octet-stream": {"schema": {"type": "string", "minLength": 1}}},
}
PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "offset": ({"type": "integer", "minimum": 0, "maximum": 10**9, "default": 0}, "How many to leave out."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "How many to list."),
    "reasons": ({"type": "integer", "minimum": 0, "maximum": MOST_REASONS, "default": 3}, "Reasons per row."),
    "all": ({"type": "boolean", "default": False}, "Explain rows that are not flagged, too."),
    "name": ({"type": "string", "minLength": 1}, "What the file is called; its ending may tell its format."),
    "model": ({"type": "string"}, "Score with this model; without one, train on the file."),
}
NEEDED = ("name",)
WORDS = {code: word.replace("_", " ").capitalize() for code, word in CODES.items()}


def document(endpoints: Iterable[Endpoint], root_path: str) -> dict[str, Any]:
    """All of it."""
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ADDML", "version": __version__, "summary": "Anomaly scores of rows and files"},
        "servers": [{"url": root_path or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(one: Endpoint) -> dict[str, Any]:
    """One method of one path."""
    schema = {"schema": _ref(one.returns)} if one.returns in SCHEMAS else {"schema": {"type": "string"}}
    kind = JSON if one.returns in SCHEMAS else one.returns
    answers: dict[str, Any] = {str(one.status): {"description": one.summary, "content": {kind: schema}}}
    if one.status == 204:
        answers = {"204": {"description": one.summary}}
    for status in (*one.errors, *(() if one.is_open else (401,))):
        answers[str(status)] = {"description": WORDS[status], "content": {JSON: {"schema": _ref("Error")}}}
    if one.path.endswith("/ready"):
        answers["503"]["content"][JSON]["schema"] = _ref("Readiness")
    name = "_".join([one.method.lower(), *re.findall(r"\w+", one.path.removeprefix(API))])
    own: dict[str, Any] = {"operationId": name, "summary": one.summary, "responses": answers}
    inside = re.findall(r"{(\w+)}", one.path)
    own["parameters"] = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in inside]
    for name in one.query:
        schema, words = PARAMETERS[name]
        about = {"name": name, "in": "query", "required": name in NEEDED, "schema": schema, "description": words}
        own["parameters"].append(about)
    if one.body is not None:
        own["requestBody"] = {"required": True, "content": BODIES[one.body]}
    return own | ({"security": []} if one.is_open else {})
