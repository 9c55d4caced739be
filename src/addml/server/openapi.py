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


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*properties], "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT, NUMBER, YES, ANYTHING = {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"}
COUNT, MAYBE_NUMBER, MAYBE_TEXT = (
    {"type": "integer", "minimum": 0},
    {"type": ["number", "null"]},
    {"type": ["string", "null"]},
)
PAGE = {"total": COUNT, "next": {"type": ["integer", "null"]}}
JOB = {
    **dict.fromkeys(("id", "file"), TEXT),
    **dict.fromkeys(("model", "progress", "made"), MAYBE_TEXT),
    "state": {"enum": ["waiting", "running", "done", "failed", "stopped"]},
    "error": {"anyOf": [_ref("Problem"), {"type": "null"}]},
    "seconds": NUMBER,
}
MODEL = dict.fromkeys(("name", "hash", "noun", "decided_by"), TEXT) | {"trained_rows": COUNT, "threshold": MAYBE_NUMBER}
NUMBERS = dict.fromkeys(("score", "p_value", "probability"), NUMBER)
REASONS = _list(_object(column=TEXT, share=NUMBER, words=TEXT))
SCHEMAS = {
    "Problem": _object(code=TEXT, message=TEXT),
    "Error": _object(error=_ref("Problem")),
    "Health": _object(status=TEXT, addml=TEXT),
    "Readiness": _object(ready=YES, models=COUNT, waiting=COUNT),
    "ModelList": _object(models=_list(_object(**MODEL, columns=COUNT)), **PAGE),
    "Model": _object(**MODEL, columns=ANYTHING, usual=_list(ANYTHING)),
    "Scores": _object(
        **dict.fromkeys(("model", "model_hash"), TEXT),
        threshold=MAYBE_NUMBER,
        results=_list(_object(**NUMBERS, is_anomaly=YES, reasons=REASONS)),
        **dict.fromkeys(("ignored", "notes"), _list(TEXT)),
    ),
    "JobList": _object(jobs=_list(_object(**JOB)), **PAGE),
    "Job": _object(**JOB, options=_list(_list(TEXT)), files=ANYTHING, summary={}),
    "Document": ANYTHING,
}
ROWS = _object(
    rows={"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}},
    reasons={"type": "integer", "minimum": 0, "maximum": MOST_REASONS},
    all=YES,
) | {"required": ["rows"], "additionalProperties": False}
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
