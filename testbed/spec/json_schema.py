"""The JSON Schema (draft 2020-12) of experiment files, from the models that read them.

What the schema refuses the loader refuses; the loader also checks what no schema can say (ids,
capacities, slots, places).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.embedding.base import embedder_names
from testbed.schedulers.policy import Parameter, PolicyKind
from testbed.schedulers.registry import known_policies
from testbed.spec.experiment_file import DEFAULT_EMBEDDER, DEFAULT_SEED, ExperimentFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def experiment_schema() -> dict[str, Any]:
    """The schema of a whole experiment file, with descriptions, patterns, names and defaults."""
    schema = _without_null(ExperimentFile.model_json_schema(ref_template="#/$defs/{model}"))
    properties = schema["properties"]
    properties["embedder"] |= {"enum": list(embedder_names()), "default": DEFAULT_EMBEDDER}
    properties["policies"] |= _policies_schema()
    properties["seed"]["default"] = DEFAULT_SEED
    definitions = dict(sorted(schema.pop("$defs").items()))
    head = {"$schema": DIALECT, "title": "Hosenet experiment"}
    return {**head, **schema, "$defs": definitions}


def _policies_schema() -> dict[str, Any]:
    kinds = known_policies()
    return {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"enum": list(kinds)}, *map(_policy_schema, kinds.values())]},
        "default": ["vc"],
    }


def _policy_schema(kind: PolicyKind) -> dict[str, Any]:
    return {
        "type": "object",
        "description": kind.summary,
        "properties": {
            "name": {"const": kind.name},
            **{key: _parameter_schema(takes) for key, takes in kind.takes.items()},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _parameter_schema(takes: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": takes.help}
    # Without an embedder of its own a policy takes the experiment's.
    if takes.key != "embedder":
        schema["default"] = takes.default
    return {**schema, "enum": list(takes.choices)} if takes.choices else schema


def _without_null(schema: Any) -> Any:
    """An absent key is the only way to leave a value out: a file's ``null`` is an error."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
        # Property names below "properties" may be called title; pydantic's own titles go.
        and not (key == "title" and isinstance(value, str))
    }
    choices = [choice for choice in plain.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del plain["anyOf"]
        return {**choices[0], **plain}
    return {**plain, "anyOf": choices} if choices else plain
