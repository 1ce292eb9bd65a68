"""Every bad file gets all of its errors, in these words: ``bad/NAME.yaml`` beside ``bad/NAME.txt``.

After a change of wording: read what ``python tests/unit/spec/test_bad_files.py`` writes anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.spec import document
from testbed.spec.document import (
    MAX_FILE_BYTES,
    SpecErrors,
    find_file,
    read_text,
)
from testbed.spec.experiment_file import load_experiment, parse_experiment

BAD = sorted((Path(__file__).parent / "bad").glob("*.yaml"))


def errors_of(path: Path) -> str:
    """All problems of a file, one a line; the file is named without its folder."""
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(read_text(path), Path(path.name))
    return f"{caught.value}\n"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_all_errors_at_once(path: Path) -> None:
    assert errors_of(path) == path.with_suffix(".txt").read_text("utf-8")


def test_there_are_bad_files() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "x.yaml:1:1: is empty"),
        (b"\n\n", "x.yaml:1:1: is empty"),
        (b"---\n", "x.yaml:1:1: is empty"),
        (b"name: caf\xe9\n", "x.yaml:1:10: byte 0xe9 is not UTF-8: save the file as UTF-8"),
        (b"seed: 1\nname: \x00\n", "x.yaml:2:7: the character U+0000 cannot stand in YAML"),
        (b"\xff\xfen\0", "x.yaml:1:1: byte 0xff is not UTF-8: save the file as UTF-8"),
        (
            b"\xef\xbb\xbfname: caf\xe9\n",
            "x.yaml:1:10: byte 0xe9 is not UTF-8: save the file as UTF-8",
        ),
        (
            b'a: "\\U00110000"',
            "x.yaml:1:7: not YAML: the number of an escape or version is too large",
        ),
        (
            b'a: "\\UFFFFFFFF"',
            "x.yaml:1:7: not YAML: the number of an escape or version is too large",
        ),
        (
            b"%YAML " + b"1" * 5000 + b".1\n---\na: 1\n",
            "x.yaml:1:7: not YAML: the number of an escape or version is too large",
        ),
        (b"[" * 500, "x.yaml:1:1: is nested too deeply"),
        (
            b"name: " + b"[" * 40 + b"]" * 40,
            "x.yaml:1:39: is nested more than 32 deep",
        ),
        (b"a: &a [*a]\n", "x.yaml:1:4: is nested more than 32 deep"),
        (
            b"x: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 10))
                for i in range(8)
            ),
            "x.yaml:1:24: holds more than 2,000 values, aliases expanded",
        ),
        (b"#" * (MAX_FILE_BYTES + 1), "x.yaml: is larger than an experiment file may be (1 MiB)"),
    ],
    ids=[
        "empty", "blank", "marker", "latin-1", "nul", "utf-16",
        "latin-1 after a mark", "no character", "no integer", "long version",
        "brackets", "deep", "recursive",
        "bomb", "large",
    ],
)  # fmt: skip
def test_files_that_are_no_documents(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        document, "MAX_VALUES", 2_000
    )  # as the limit is, it takes seconds
    Path("x.yaml").write_bytes(content)
    with pytest.raises(SpecErrors) as caught:
        load_experiment("x.yaml")
    assert str(caught.value) == expected
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        SpecErrors, match=r"x\.yaml: there is no such file$"
    ):
        load_experiment(tmp_path / "x.yaml")
    with pytest.raises(SpecErrors, match=r"is a directory, not a file$"):
        load_experiment(tmp_path)


def test_a_problem_in_another_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        "servers: [{name: s, slots: 2}]\nswitches: [t]\nlinks:\n"
        "  - {lower: s, upper: t, capacity: 5}\n"
    )
    main = tmp_path / "main.yaml"
    main.write_text(
        "topology: {kind: custom, path: lab.yaml}\n"
        "workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 5, duration: 2 s}]}\n"
    )
    with pytest.raises(SpecErrors) as caught:
        load_experiment(main)
    places = [
        (problem.place.source, problem.place.line)
        for problem in caught.value.problems
    ]
    assert places == [(str(tmp_path / "lab.yaml"), 4), (str(main), 2)]


NO_KIND = """\
topology: {fanout: [2, 2], links: 1 MB/s, slots_per_server: 2}
policies: [vx]
workload:
WRONG  jobs:
    - {id: a, vms: 2, bandwidth: 10 Mbit/s, duration: 3}
    - {id: a, vms: 0, bandwith: 10 Mbit/s, duration: 3 s}
"""


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("", "is required: one of jobs"),
        ("  kind: jbos\n", "unknown kind of"),
    ],
)
def test_without_a_kind_all_errors_are_told(
    tmp_path: Path, wrong: str, told: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(NO_KIND.replace("WRONG", wrong))
    with pytest.raises(SpecErrors) as caught:
        load_experiment(path)
    by_key = {each.path: each.message for each in caught.value.problems}
    assert set(by_key) == {
        "topology.kind",
        "topology.links",
        "policies[0]",
        "workload.kind",
        "workload.jobs[0].duration",
        "workload.jobs[1].id",
        "workload.jobs[1].vms",
        "workload.jobs[1].bandwith",
    }
    assert told in by_key["workload.kind"]


def test_keys_of_a_misspelt_kind_of_job_are_not_judged(
    tmp_path: Path,
) -> None:
    job = "{id: a, kind: progam, vms: 2, duration: 2 s, command: [x], launch: mpi}"
    path = tmp_path / "x.yaml"
    path.write_text(
        "topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}\n"
        f"policies: [vc]\nworkload: {{kind: jobs, jobs: [{job}]}}\n"
    )
    with pytest.raises(SpecErrors) as caught:
        load_experiment(path)
    assert [each.path for each in caught.value.problems] == [
        "workload.jobs[0].kind"
    ]


def test_keys_of_no_certain_kind_are_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "topology: {slots_per_server: 2}\nworkload: {colour: red}\n"
    )
    with pytest.raises(SpecErrors) as caught:
        load_experiment(path)
    assert [each.path for each in caught.value.problems] == [
        "topology.kind",
        "workload.kind",
    ]


def test_a_missing_file_that_was_meant_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("")
    for written, told in (
        ("mine", r"no such file \(did you mean mine\.yaml\?\)$"),
        (
            "failures",
            r"is an example: after `testbed examples`, it is examples/failures",
        ),
        ("mien", r"no such file \(did you mean mine\.yaml\?\)$"),
        ("quickstrat.yml", r"quickstart is an example: after"),
        ("other", r"no such file$"),
    ):
        with pytest.raises(SpecErrors, match=told):
            load_experiment(written)


def test_a_name_under_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "day.swf").write_text("")
    assert find_file("~/day.swf", Path("elsewhere")) == tmp_path / "day.swf"


if __name__ == "__main__":
    for file in BAD:
        file.with_suffix(".txt").write_text(errors_of(file), "utf-8")
