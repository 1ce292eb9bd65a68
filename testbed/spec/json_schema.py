"""The JSON Schema (draft 2020-12) of experiment files, from the models that
read them.

The loader refuses all that the schema refuses, and checks more: ids,
capacities, slots and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from testbed.embedding.base import embedder_names
from testbed.plugins import Group
from testbed.schedulers.policy import Parameter, PolicyKind
from testbed.schedulers.registry import known_policies
from testbed.spec.experiment_file import (
    DEFAULT_EMBEDDER,
    DEFAULT_SEED,
    ExperimentFile,
)
from testbed.spec.installed_workload import InstalledWorkload
from testbed.spec.plugin_functions import known_functions
from testbed.spec.topology_section import InstalledTopology
from testbed.spec.validation import (
    Section,
    SpecModel,
    descriptions,
    one_line,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Described(GenerateJsonSchema):
    """Pydantic's generator, with the fields' descriptions."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """The schema of one model."""
        made = super().model_schema(schema)
        model: type[SpecModel] = schema["cls"]
        properties = made.get("properties", {})
        for name, text in descriptions(model).items():
            if name in properties:
                properties[name]["description"] = text
        return made


def experiment_schema() -> dict[str, Any]:
    """The schema of a whole experiment file, with descriptions, patterns, names
    and defaults.
    """
    schema = _without_null(
        ExperimentFile.model_json_schema(
            ref_template="#/$defs/{model}", schema_generator=_Described
        )
    )
    properties = schema["properties"]
    # Names are known when the schema is made: installed packages add
    # theirs.
    properties["embedder"] |= {
        "anyOf": [{"enum": list(embedder_names())}, _EMBEDDER_CLASS],
        "default": DEFAULT_EMBEDDER,
    }
    properties["policies"] |= _policies_schema()
    properties["seed"]["default"] = DEFAULT_SEED
    definitions = dict(sorted(schema.pop("$defs").items()))
    _with_installed(properties["topology"], definitions, "topologies")
    _with_installed(properties["workload"], definitions, "workloads")
    _with_demands(definitions["JobEntry"])
    head = {"$schema": DIALECT, "title": "Hosenet experiment"}
    return {**head, **schema, "$defs": definitions}


_GENERIC: Mapping[Group, str] = {
    "topologies": InstalledTopology.__name__,
    "workloads": InstalledWorkload.__name__,
}


def _with_installed(
    union: dict[str, Any], definitions: dict[str, Any], group: Group
) -> None:
    """Replaces the generic section of a group by those of installed packages."""
    del definitions[_GENERIC[group]]
    union["oneOf"].remove({"$ref": f"#/$defs/{_GENERIC[group]}"})
    for function in known_functions(group):
        union["oneOf"].append(_section_schema(function.section))


def _with_demands(entry: dict[str, Any]) -> None:
    """Adds the kinds of jobs of installed packages, each with its parameters."""
    kinds = known_functions("demands")
    if not kinds:
        return
    rules = []
    for kind in kinds:
        name = kind.use.name
        entry["properties"]["kind"]["enum"].append(name)
        # Each kind has parameters of its own, which a condition brings in.
        is_kind = {
            "properties": {"kind": {"const": name}},
            "required": ["kind"],
        }
        has_its_keys = {
            "properties": {"parameters": _section_schema(kind.section)}
        }
        rules.append({"if": is_kind, "then": has_its_keys})
    entry["allOf"] = rules


def _section_schema(section: type[Section]) -> dict[str, Any]:
    """The schema of a section, with all that it refers to."""
    schema: dict[str, Any] = _without_null(
        section.model_json_schema(schema_generator=_Described)
    )
    return schema


def _class_schema(
    description: str, examples: list[str], additional: object
) -> dict[str, Any]:
    """The schema of a mapping that names a class, and may have other keys."""
    named = {
        "type": "string",
        "pattern": "^.+:[^:]+$",
        "description": "a file beside this one and a class in it, or a module and a class",
        "examples": examples,
    }
    return {
        "type": "object",
        "description": description,
        "properties": {"class": named},
        "required": ["class"],
        "additionalProperties": additional,
    }


_EMBEDDER_CLASS = _class_schema(
    "an embedder of a Python file or of a module",
    ["./mine.py:MyEmbedder"],
    additional=False,
)
_POLICY_CLASS = _class_schema(
    "a policy of a Python file or of a module; its constructor says what it takes",
    ["./mine.py:MyPolicy", "package.module:MyPolicy"],
    additional={"type": ["string", "number", "boolean"]},
)


def _policies_schema() -> dict[str, Any]:
    kinds = known_policies()
    return {
        "type": "array",
        "minItems": 1,
        "items": {
            "anyOf": [
                {"enum": list(kinds)},
                *map(_policy_schema, kinds.values()),
                _POLICY_CLASS,
            ]
        },
        "default": ["vc"],
    }


def _policy_schema(kind: PolicyKind) -> dict[str, Any]:
    properties: dict[str, Any] = {"name": {"const": kind.name}}
    for key, parameter in kind.takes.items():
        properties[key] = _parameter_schema(parameter)
    return {
        "type": "object",
        "description": kind.summary,
        "properties": properties,
        "required": ["name"],
        "additionalProperties": False,
    }


def _parameter_schema(takes: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": takes.help}
    if takes.default is not None:
        schema["default"] = takes.default
    if takes.key != "embedder":
        if takes.choices:
            return {**schema, "enum": list(takes.choices)}
        return schema
    named = {"enum": list(embedder_names())}
    return {**schema, "anyOf": [named, _EMBEDDER_CLASS]}


def _without_null(schema: Any) -> Any:
    """The schema without null among the types, and without pydantic's titles.

    A file leaves a value out by leaving out its key: ``null`` is an error.
    """
    if isinstance(schema, list):
        return list(map(_without_null, schema))
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        # A default of None stands for an absent key.
        if key == "default" and value is None:
            continue
        # Property names below "properties" may be called title; pydantic's own
        # titles go.
        if key == "title" and isinstance(value, str):
            continue
        if key == "description" and isinstance(value, str):
            plain[key] = one_line(value)
        else:
            plain[key] = _without_null(value)
    return _without_null_choice(plain)


def _without_null_choice(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null among the choices; a single choice that is left
    takes their place.
    """
    choices = list(schema.get("anyOf", ()))
    if {"type": "null"} in choices:
        choices.remove({"type": "null"})
    if len(choices) == 1:
        del schema["anyOf"]
        return {**choices[0], **schema}
    if choices:
        return {**schema, "anyOf": choices}
    return schema
