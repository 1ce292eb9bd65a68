from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import testbed
from testbed.errors import BadInput
from testbed.record.columns import REQUESTS
from testbed.record.frames import dtype_of
from testbed.spec.document import SpecErrors, read_document
from testbed.spec.given_values import yaml_of
from tests.unit.interface.given import SMALL, TEXT, by_command

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.mark.slow
def test_importing_it_loads_nothing_else() -> None:
    code = (
        "import sys, testbed; heavy = {'pandas', 'pyarrow', 'numpy', 'matplotlib', 'yaml',"
        " 'pydantic', 'distributed', 'importlib.metadata'}; print(sorted(heavy & set(sys.modules)),"
        " sorted(m for m in sys.modules if m.startswith('testbed.')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "[] []"


@pytest.mark.slow
def test_a_dictionary_and_a_file_decide_the_same(tmp_path: Path) -> None:
    folder = by_command(tmp_path)
    run = testbed.load(SMALL).simulate(tmp_path / "given")
    assert run.policies == ("vc", "dcloud-gamma=0.12")
    for one in folder.iterdir():
        if one.is_dir():
            there = run.folder / one.name
            for name in ("events.jsonl", "jobs.csv", "links.csv"):
                assert (there / name).read_bytes() == (
                    one / name
                ).read_bytes()
    assert testbed.compare(run, folder).same_decisions


@pytest.mark.slow
def test_what_is_given_is_in_the_folder_as_a_file_that_repeats_it(
    tmp_path: Path,
) -> None:
    first = testbed.load(SMALL, seed=5).simulate(tmp_path)
    again = testbed.load(first["vc"].folder / "spec.yaml", seed=5).simulate(
        tmp_path
    )
    assert again.jobs.equals(first.jobs)
    recorded = json.loads(
        (first["vc"].folder / "provenance.json").read_text("utf-8")
    )
    assert recorded["command"] == [
        "python",
        "-c",
        (
            "import testbed; testbed.load('spec.yaml', {'seed': 5})"
            f".simulate(out={str(tmp_path)!r})"
        ),
    ]


def test_it_says_what_it_is(tmp_path: Path) -> None:
    experiment = testbed.load(SMALL)
    assert (experiment.name, experiment.seed) == ("small", 3)
    assert experiment.policies == ("vc", "dcloud-gamma=0.12")
    assert experiment.datacentre.n_servers == 4
    assert list(experiment.jobs["job_id"]) == ["no", "1e3", "1.5"]
    assert list(experiment.jobs["deadline_s"].dropna()) == [60.0]
    assert {
        name: dtype_of(name, kind) for name, kind in REQUESTS.items()
    } == dict(experiment.jobs.dtypes)
    assert (
        repr(experiment)
        == "<Experiment small: vc, dcloud-gamma=0.12; seed 3>"
    )


@pytest.mark.slow
def test_its_jobs_are_those_of_the_run(tmp_path: Path) -> None:
    experiment = testbed.load(SMALL, policies=["vc"])
    played = experiment.simulate(tmp_path).jobs
    assert experiment.jobs.equals(played[list(REQUESTS)])


def test_values_in_place_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    experiment = testbed.load(
        path,
        {
            "workload.jobs[0].bandwidth": "50 Mbit/s",
            "topology.fanout": (2, 3),
        },
        seed=np.int64(8),  # type: ignore[arg-type]
        policies=["bl", {"name": "dcloud", "gamma": 0.1}],
        name="other",
    )
    assert (experiment.seed, experiment.name) == (8, "other")
    assert experiment.policies == ("bl", "dcloud-gamma=0.1")
    assert experiment.datacentre.n_servers == 6
    assert experiment.jobs["requested_bps"][0] == 50_000_000
    changed = experiment.with_(
        {"topology.fanout": [1, 3]}, policies="[vc]", seed=9
    )
    assert (
        changed.policies,
        changed.seed,
        changed.datacentre.n_servers,
    ) == (
        ("vc",),
        9,
        3,
    )
    assert changed.jobs["requested_bps"][0] == 50_000_000
    assert (experiment.seed, experiment.datacentre.n_servers) == (8, 6)


def test_a_changed_experiment_is_of_the_text_that_was_loaded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    experiment = testbed.load(path)
    path.write_text("no experiment", encoding="utf-8")
    assert experiment.with_(seed=7).seed == 7


def test_all_errors_at_once_without_lines_nobody_wrote() -> None:
    wrong: dict[str, Any] = copy.deepcopy(SMALL)
    wrong["topology"]["links"][1] = 3
    wrong["policies"][0] = "vv"
    wrong["workload"]["jobs"][1]["vms"] = object()
    wrong["workload"]["jobs"][2][4] = "key"
    wrong["scale"] = {"rate": float("nan")}
    with pytest.raises(testbed.SpecErrors) as caught:
        testbed.load(wrong, {"embedder": Fraction}, sed=4)
    unfit = "must be a value as a file can hold it, not an object of"
    shown = [
        re.split("; known|: write", str(problem))[0]
        for problem in caught.value.problems
    ]
    assert shown == [
        "experiment: policies[0]: unknown policy 'vv'",
        "experiment: scale.rate: must be a value as a file can hold it, not nan",
        "experiment: topology.links[1]: 3 is a bare number",
        f"experiment: workload.jobs[1].vms: {unfit} builtins.object",
        "experiment: workload.jobs[2]: has the key 4, which is no text",
        f"overrides: embedder: {unfit} abc.ABCMeta",
        "sed=4: sed: is an unknown key (did you mean 'seed'?)",
    ]


def test_a_files_errors_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT.replace("vc,", "vv,"), encoding="utf-8")
    with pytest.raises(
        testbed.SpecErrors,
        match=r"small\.yaml:4:12: policies\[0\]: unknown",
    ):
        testbed.load(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "load takes a path or a dictionary, not int"),
        ("a\0b", "load takes a path or a dictionary, not 'a"),
        ({}, "experiment: topology: is required"),
        ("nowhere.yaml", "nowhere.yaml: there is no such file"),
    ],
)
def test_what_is_no_experiment(given: Any, message: str) -> None:
    with pytest.raises(testbed.BadInput, match=message):
        testbed.load(given)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [(["seed"], "is no mapping"), ({1: 2}, "the key 1, which is no text")],
)
def test_what_is_no_override(overrides: Any, message: str) -> None:
    with pytest.raises(testbed.BadInput, match=message):
        testbed.load(SMALL, overrides)


def test_a_path_is_known_by_its_name_alone(tmp_path: Path) -> None:
    """An entry of os.scandir has another text than its name."""
    (tmp_path / "small.yaml").write_text(TEXT, encoding="utf-8")
    with os.scandir(tmp_path) as entries:
        (entry,) = entries
        assert testbed.load(entry).name == "small"


def test_what_is_no_run_or_experiment_is_told_by_its_type() -> None:
    experiment: Any = testbed.load(SMALL)
    with pytest.raises(
        testbed.BadInput, match="folder or name, not NoneType"
    ):
        testbed.open_run(cast("Any", None))
    with pytest.raises(testbed.BadInput, match="or names, not Experiment"):
        testbed.compare(experiment, "latest")
    with pytest.raises(
        testbed.BadInput, match="path or a dictionary, not Experiment"
    ):
        testbed.sweep(experiment, {"seed": [1, 2]})


def test_what_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(
        testbed.SpecErrors, match="a list nested deeper than 32"
    ):
        testbed.load(SMALL | {"policies": endless})


def test_relative_paths_are_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = (
        "; MaxProcs: 4\n"
        + " ".join(["1 0 0 10 1 -1 -1 1 10", *["-1"] * 9])
        + "\n"
    )
    Path("own.swf").write_text(trace, encoding="utf-8")
    flat = {"kind": "flat", "nodes": 4}
    workload = {"kind": "swf", "path": Path("own.swf")}
    experiment = testbed.load(
        {"topology": flat, "policies": ["fcfs"], "workload": workload}
    )
    assert len(experiment.jobs) == 1
    assert experiment.simulate().folder.parent == tmp_path / "runs"


@pytest.mark.slow
def test_it_is_silent_unless_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = testbed.load(SMALL, policies=["vc"])
    experiment.simulate(tmp_path)
    assert capfd.readouterr() == ("", "")
    experiment.simulate(tmp_path, progress=True)
    shown = capfd.readouterr()
    assert (shown.out, "run folder: " in shown.err) == ("", True)


def test_plans_are_the_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from testbed.cli import main

    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    assert main.run(["plan", str(path), "--set", "policies=[vc]"]) == 0
    plans = testbed.load(path).plan("vc")
    assert [one.policy for one in plans] == ["vc"]
    assert str(plans[0]).strip() == capsys.readouterr().out.strip()
    assert "htb rate 400000000bit" in plans[0].tenants[0].text
    with pytest.raises(
        testbed.BadInput,
        match="unknown policy 'bl'; known: vc, dcloud-gamma",
    ):
        testbed.load(path).plan("bl")


def test_a_live_run_needs_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(testbed.MachineCannot, match="needs root"):
        testbed.load(SMALL).run(tmp_path)
    with pytest.raises(
        testbed.BadInput, match="prefix HN1: 1 to 4 lower-case letters"
    ):
        testbed.load(SMALL).run(tmp_path, prefix="HN1")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_live_run_is_the_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    played: list[Any] = []

    def run_live(
        experiment: Any,
        top: Any,
        options: Any,
        show: Any,
        command: list[str],
    ) -> Any:
        from testbed.play.playing import run_simulated

        played.append((experiment.name, options, command[-1]))
        show.narrate("building the network")
        return run_simulated(
            experiment, top, lambda *_: show.progress({}, 1.0, ""), command
        )

    monkeypatch.setattr("testbed.play.live_run.run_live", run_live)
    experiment = testbed.load(SMALL, policies=["vc"])
    run = experiment.run(
        tmp_path,
        api_port=9,
        controller="os-ken",
        force=True,
        format="parquet",
    )
    assert (run.policies, run.good) == (("vc",), True)
    assert (run.folder / "events.parquet").is_file()
    [(name, options, command)] = played
    assert (name, options.api_port, options.library, options.force) == (
        "small",
        9,
        "os-ken",
        True,
    )
    assert command.endswith(
        f".run(out={str(tmp_path)!r}, format='parquet', api_port=9,"
        " controller='os-ken', force=True)"
    )
    with pytest.raises(BadInput, match="unknown builder 'bached'"):
        experiment.run(tmp_path, builder=cast("Any", "bached"))
    with pytest.raises(BadInput, match="unknown controller 'nox'"):
        experiment.run(tmp_path, controller=cast("Any", "nox"))


def test_a_file_of_any_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("experiment").write_text(TEXT + "seed: many\n", "utf-8")
    with pytest.raises(SpecErrors, match=r"experiment:\d+:\d+: seed: "):
        testbed.load("experiment")


def test_an_unknown_format_is_told_before_a_folder_is_made(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        testbed.BadInput,
        match="unknown format 'feather'; known: csv, parquet",
    ):
        testbed.load(SMALL).simulate(tmp_path, format="feather")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_failed_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any, **_named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("testbed.play.playing.begin_folder", full)
    with pytest.raises(
        testbed.RunFailed, match=r"the run stopped: .*No space left"
    ):
        testbed.load(SMALL, policies=["vc"]).simulate(tmp_path)


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\ufeff"), max_size=12
)
SCALARS = (
    st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.decimals(-(10**9), 10**9, places=6).map(float)
    | TEXTS.filter(lambda text: text.isprintable())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(
                st.sampled_from("abcno_-1e:# "), min_size=1, max_size=5
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["a", "no", "b c", "1", "x:y"]), VALUES, min_size=1
    )
)
def test_values_are_read_back_as_they_were_given(
    values: dict[str, Any],
) -> None:
    text, problems = yaml_of(values, "experiment")
    assert not problems
    read = read_document(text, "experiment")
    assert (read.data, read.problems) == (values, [])
    assert yaml.safe_load(text) is not None


class Kind(str, Enum):  # noqa: UP042 - StrEnum has another text
    """An enumeration whose members print as ``Kind.VC``."""

    VC = "vc"


def test_an_enumeration_s_members_are_the_texts_that_they_equal() -> None:
    values = {"policies": [Kind.VC], Kind.VC: "a"}
    text, problems = yaml_of(values, "experiment")
    assert not problems
    assert yaml.safe_load(text) == {"policies": ["vc"], "vc": "a"}
