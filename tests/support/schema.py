"""The JSON Schema of experiment files, as an independent reader has it."""

from __future__ import annotations

from functools import cache

from jsonschema import Draft202012Validator

from testbed.spec.json_schema import experiment_schema


@cache
def schema_validator() -> Draft202012Validator:
    """Validator of the schema without plug-ins, made once a process.

    A test that adds plug-ins makes one of its own.
    """
    return Draft202012Validator(experiment_schema())
