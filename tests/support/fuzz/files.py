"""Experiment files: examples changed, and files made from the JSON Schema; with all they name."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from testbed.embedding.base import embedder
from testbed.errors import BadInput
from testbed.plan.installation import network_text
from testbed.plan.network_plan import check_reachable, network_plan
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from testbed.spec.json_schema import experiment_schema
from tests.support.fuzz import traces
from tests.support.fuzz.mutations import (
    HOSTILE,
    NUMBERS,
    PIECES,
    SIZES,
    VALUES,
    changed_tree,
    flipped,
    rearranged,
    replaced_word,
)
from tests.support.fuzz.workers import sound_answer

ROOT = Path(__file__).parents[3]
NAME = "x.yaml"
LOOKED_AT_JOBS = 300
PLANNED_SERVERS = 64
"""Networks of more servers are left to the benchmarks."""

TOPO = """\
from mininet.topo import Topo


class Two(Topo):
    def build(self, **given):
        one, two = (self.addHost(name) for name in ("h1", "h2"))
        switch = self.addSwitch("s1")
        for host in (one, two):
            self.addLink(host, switch, bw=given.get("bw", 10))
"""
LAB = """\
servers: [{name: a, slots: 2}, {name: b, slots: 2}]
switches: [t]
links: [{lower: a, upper: t, capacity: 1 Gbit/s}, {lower: b, upper: t, capacity: 1 Gbit/s}]
"""
PROFILE = """\
application: sort
options:
  - {bandwidth: 100 Mbit/s, time: 60 s}
  - {bandwidth: 200 Mbit/s, time: 30 s}
"""
BESIDE: dict[str, bytes] = {
    "topo.py": TOPO.encode(),
    "lab.yaml": LAB.encode(),
    "profile.yaml": PROFILE.encode(),
    "app.py": b"print('x')\n",
    "log.swf": traces.SWF,
    "leases.lwf": traces.LWF,
    "leases.xml": traces.XML,
    "jobs.tsv": traces.SWIM,
}
"""The files that an experiment may name, beside it."""
NAMED = {
    "path": (
        "log.swf",
        "leases.lwf",
        "leases.xml",
        "jobs.tsv",
        "lab.yaml",
        "topo.py",
        "none",
    ),
    "profile": ("profile.yaml", "lab.yaml", "none"),
    "app": ("app.py", "app.py", "none"),
    "topo": ("Two", "None"),
    "application": ("sort", "index"),
    "embedder": ("oktopus", "greedy"),
}
TEXTS_OF_PATTERNS = {
    "bit/s": """\
0 bit/s,1 bit/s,2 bit/s,0.5 bit/s,80 Mbit/s,500 Mbit/s,1 Gbit/s,1 Mbit/s,1000 Tbit/s,\
9000000 Tbit/s,99999999999999999999 Tbit/s""",
    "|ms|": """\
0 s,1 us,0.001 us,250 ms,1 s,6 s,90 min,1 h,30 d,30000 d,99999999999 d,\
1000000000000000000000000000000 d""",
    "iB": "1 MiB,512 MiB,8 GiB,0 MiB,9999999999999 GiB",
    "%": "0 %,1 %,50 %,100 %,101 %,0.0000001 %,-12 %",
    "^[A-Za-z0-9]": f"a,b,job-1,sort,{'x' * 64}",
}
"""Texts for a pattern of the schema that has such a piece in it."""


@cache
def _examples() -> tuple[str, ...]:
    """Examples and bad files, with traces that lie beside them."""
    folders = (ROOT / "examples", ROOT / "tests" / "unit" / "spec" / "bad")
    texts = [
        path.read_text("utf-8")
        for folder in folders
        for path in folder.glob("*.yaml")
    ]
    names = {
        "KTH-SP2-1996-2.1-cln.swf.gz": "log.swf",
        "FB-2009_samples_24_times_1hr_0.tsv.gz": "jobs.tsv",
        "profiles/exchange.yaml": "profile.yaml",
    }
    for old, new in names.items():
        texts = [text.replace(old, new) for text in texts]
    # A folder lists its files in any order, and an input has to be the same
    # everywhere.
    return tuple(sorted(texts))


@cache
def _trees() -> tuple[Any, ...]:
    """The examples that are YAML, as plain values."""
    trees = []
    for text in _examples():
        try:
            tree = yaml.safe_load(text)
            yaml.safe_dump(tree)
        except (yaml.YAMLError, RecursionError):
            continue
        if isinstance(tree, dict):
            trees.append(tree)
    return tuple(trees)


# -------------------------------------------------------------------------- made from the schema


def _made(
    rng: random.Random, schema: dict[str, Any], key: str, wild: float
) -> Any:
    """A value of a schema, mostly; each part is hostile with the probability ``wild``."""
    if rng.random() < wild:
        return deepcopy(rng.choice(VALUES))
    if "$ref" in schema:
        schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    for either in ("oneOf", "anyOf"):
        if either in schema:
            return _made(rng, rng.choice(schema[either]), key, wild)
    if "const" in schema or "enum" in schema:
        return rng.choice(schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "object":
            made: Any = _mapping(rng, schema, wild)
        case "array":
            least = schema.get("minItems", 0)
            count = rng.randint(
                least, max(least, rng.choice((1, 2, 3, 3, 6)))
            )
            made = [
                _made(rng, schema.get("items", {}), key, wild)
                for _ in range(count)
            ]
        case "integer" | "number" as kind:
            made = _number(rng, schema, whole=kind == "integer")
        case "boolean":
            made = rng.random() < 0.5
        case "string":
            made = _text(rng, schema, key)
        case _:
            made = schema.get("default", rng.choice(VALUES))
    return made


@cache
def _schema() -> dict[str, Any]:
    return experiment_schema()


def _mapping(
    rng: random.Random, schema: dict[str, Any], wild: float
) -> dict[str, Any]:
    required = schema.get("required", ())
    out = {
        key: _made(rng, below, key, wild)
        for key, below in schema.get("properties", {}).items()
        if key in required or rng.random() < 0.3
    }
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        out |= {
            name: _made(rng, others, name, wild)
            for name in ("sort", "index")
        }
    return out


def _number(
    rng: random.Random, schema: dict[str, Any], *, whole: bool
) -> int | float:
    least = schema.get(
        "minimum", schema.get("exclusiveMinimum", -10 if not whole else 0)
    )
    most = schema.get("maximum", 10**9)
    act = rng.random()
    if act < 0.6:
        value: float = least + rng.choice((0, 1, 1, 2, 3, 4, 8))
    elif act < 0.8:
        value = min(most, least + 10 ** rng.uniform(0, 4))
    elif act < 0.9:
        value = rng.choice((least, most, least - 1, most + 1, most // 2))
    else:
        # By the power mostly near the least, now and then near the most.
        value = least + (most - least) * rng.random() ** 8
    if whole:
        return int(value)
    return rng.choice(
        (value, round(value, 3), float(f"{rng.random():.4f}"))
    )


def _text(rng: random.Random, schema: dict[str, Any], key: str) -> str:
    if key in NAMED:
        return rng.choice(NAMED[key])
    pattern = schema.get("pattern", "")
    for sign, texts in TEXTS_OF_PATTERNS.items():
        if sign in pattern:
            return rng.choice(texts.split(","))
    return rng.choice(("a", "b", "c", "sort", "s1", "t"))


TOPOLOGIES = (
    "{kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}",
    "{kind: tree, fanout: [2, 2, 2], links: 1 Gbit/s, slots_per_server: 4}",
    "{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}",
    "{kind: flat, nodes: 10, slots_per_server: 8}",
    "{kind: flat, nodes: 4, slots_per_server: 2, memory_per_server: 8 GiB}",
    "{kind: custom, path: lab.yaml}",
    "{kind: mininet, path: topo.py, topo: Two, slots_per_server: 4}",
)
WORKLOADS = """\
{kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]}
{kind: jobs, jobs: [{id: a, vms: 3, bandwidth: 1 Mbit/s, duration: 2 s}, {id: b, at: 1 s, vms: 2,\
 bandwidth: 5 Mbit/s, duration: 9 s, deadline: 90 s}]}
{kind: poisson, per_hour: 20, hours: 1}
{kind: batch, jobs: 20}
{kind: feitelson, jobs: 50}
{kind: jann, jobs: 50}
{kind: exponential, jobs: 50}
{kind: leases, jobs: 50}
{kind: swf, path: log.swf}
{kind: lwf, path: leases.lwf}
{kind: lwf, path: leases.xml}
{kind: swim, path: jobs.tsv, jobs: 20, vms: as-is}
{kind: ladder, application: {id: a, vms: 2, bandwidth: 9 Mbit/s, duration: 2 s},\
 bandwidths: [9 Mbit/s, 4 Mbit/s]}
""".splitlines()


def _combined(rng: random.Random) -> dict[str, Any]:
    """A valid file of two sections, with keys of theirs and others made from the schema."""
    tree: dict[str, Any] = {
        "topology": yaml.safe_load(rng.choice(TOPOLOGIES)),
        "workload": yaml.safe_load(rng.choice(WORKLOADS)),
    }
    likely = rng.choice((0.0, 0.05, 0.2))
    for section, made in tree.items():
        for either in _schema()["properties"][section]["oneOf"]:
            below = _schema()["$defs"][either["$ref"].rpartition("/")[2]][
                "properties"
            ]
            if below["kind"]["const"] == made["kind"] and set(below) >= set(
                made
            ):
                made.update(_some(rng, below, likely))
    for job in (
        tree["workload"].get("jobs", [])
        if tree["workload"]["kind"] == "jobs"
        else []
    ):
        job.update(
            _some(rng, _schema()["$defs"]["JobEntry"]["properties"], likely)
        )
    return tree | {
        key: _made(rng, below, key, 0.0)
        for key, below in _schema()["properties"].items()
        if key not in tree and rng.random() < 0.15
    }


def _some(
    rng: random.Random, properties: dict[str, Any], likely: float
) -> dict[str, Any]:
    return {
        key: _made(rng, below, key, 0.0)
        for key, below in properties.items()
        if key not in ("kind", "path", "id", "jobs", "servers")
        and rng.random() < likely
    }


# --------------------------------------------------------------------------------- one input


def _content(rng: random.Random) -> bytes:
    """The text of an experiment file."""
    act = rng.random()
    if act < 0.03:
        return rng.choice(
            (
                rng.randbytes(rng.choice((1, 30, 3000))),
                b"[" * 9000,
                b"{a: " * 900,
            )
        )
    if act < 0.2:
        text = rearranged(rng, rng.choice(_examples()))
    elif act < 0.3:
        text = rng.choice(_examples())
        for _ in range(rng.choice((1, 1, 2, 5))):
            text = replaced_word(rng, text)
    elif act < 0.4:
        tree = changed_tree(rng, deepcopy(rng.choice(_trees())))
        text = yaml.safe_dump(tree, sort_keys=False)
    elif act < 0.75:
        text = yaml.safe_dump(_combined(rng), sort_keys=False)
    else:
        tree = _made(rng, _schema(), "", rng.choice((0.0, 0.0, 0.02, 0.1)))
        # JSON is YAML, but for its numbers with exponents.
        text = (
            yaml.safe_dump(tree, sort_keys=False)
            if act < 0.96
            else json.dumps(tree)
        )
    data = text.encode("utf-8", "surrogatepass")
    return flipped(rng, data) if rng.random() < 0.05 else data


def _settings(rng: random.Random) -> Iterator[str]:
    """Values in place of the file's, on the command line."""
    keys = (
        "seed",
        "scale.rate",
        "policies",
        "workload.jobs",
        "topology",
        "workload.jobs[0].vms",
    )
    for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 2))):
        key = rng.choice(
            (
                *keys,
                "a" * 300,
                "a.b.c",
                "workload.kind",
                "topology.k",
                "x[",
                "[0]",
            )
        )
        values = (
            *NUMBERS.values(),
            *SIZES,
            *PIECES,
            *map(str, VALUES),
            *map(repr, HOSTILE[:12]),
        )
        yield from ("--set", f"{key}={rng.choice(values)}")


def attempt(rng: random.Random, folder: Path) -> str:
    """Validate a file, and plan the network of one that is valid."""
    beside = dict(BESIDE)
    if rng.random() < 0.1:
        name = rng.choice(("lab.yaml", "profile.yaml"))
        text = beside[name].decode()
        changed = rng.choice((rearranged, replaced_word))(
            rng, text
        ).encode()
        beside[name] = (
            flipped(rng, changed) if rng.random() < 0.2 else changed
        )
    for name, data in {**beside, NAME: _content(rng)}.items():
        (folder / name).write_bytes(data)
    settings = list(_settings(rng))
    path = folder / NAME
    options = ["--json"] if rng.random() < 0.5 else []
    code, value = sound_answer(
        folder, (0,), "validate", str(path), *settings, *options
    )
    if options:
        for problem in (
            value[0]["problems"]
            if isinstance(value, list)
            else value["problems"]
        ):
            assert problem["message"]
            assert problem["file"].startswith((str(folder), "--set")), (
                problem
            )
    if code:
        return "refused"
    overrides = dict(text.partition("=")[::2] for text in settings[1::2])
    return _followed(load_experiment(path, overrides))


def _followed(experiment: Experiment) -> str:
    """Makes what a valid file leads to, before anything runs."""
    for job in islice(experiment.jobs, LOOKED_AT_JOBS):
        json.dumps(job.to_json(), allow_nan=False)
    for policy in experiment.policies:
        policy.kind.make(
            embedder(experiment.embedder), dict(policy.parameters)
        )
    centre = experiment.datacentre
    if (
        not centre.n_links
        or centre.n_servers > PLANNED_SERVERS
        or len(experiment.jobs) > 1000
    ):
        return "valid"
    try:
        check_reachable(centre, experiment.jobs)
        room = [min(int(slots), 4) for slots in centre.slots]
        network = network_plan(centre, "hn", experiment.scale.rate, room)
        network_text(network, experiment.controller)
    except BadInput:
        return "valid, not planned"
    return "planned"
