"""The ``controller`` section: its file found, compiled, never run."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from testbed.cli.main import run as command
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import load_experiment
from testbed.spec.json_schema import experiment_schema

FILE = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
controller: CONTROLLER
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]}
"""


def written(
    folder: Path,
    section: str = "{app: ./mine.py}",
    code: str | None = "x = 1\n",
) -> Path:
    if code is not None:
        (folder / "mine.py").write_text(code, encoding="utf-8")
    path = folder / "one.yaml"
    path.write_text(FILE.replace("CONTROLLER", section))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        load_experiment(path)
    return [str(problem) for problem in caught.value.problems]


def test_the_file_beside_the_experiment_is_its_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, code="raise SystemExit('was run')\n")
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment("one.yaml")
    assert experiment.controller is not None
    assert experiment.controller.files == (tmp_path / "mine.py",)
    assert experiment.resolved["controller"] == {
        "app": str(tmp_path / "mine.py")
    }


def test_without_the_section_nothing_says_so(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(
        path.read_text().replace("controller: {app: ./mine.py}\n", "")
    )
    experiment = load_experiment(path)
    assert experiment.controller is None
    assert "controller" not in experiment.resolved


def test_a_mistake_of_syntax_is_told_at_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, code="import json\ndef broken(:\n")
    (problem,) = problems(path)
    assert problem.startswith(
        f"{tmp_path}/mine.py:2:12: controller.app: is not Python: "
    )


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("from . import near, far as f", "import near, far as f"),
        ("from .near import Base", "from near import Base"),
        ("from ..near import Base", "from near import Base"),
    ],
)
def test_a_relative_import_of_the_file_itself_is_refused_at_its_line(
    tmp_path: Path, statement: str, instead: str
) -> None:
    path = written(tmp_path, code=f"import json\n{statement}\n")
    (problem,) = problems(path)
    assert problem == (
        f"{tmp_path}/mine.py:2:1: controller.app: {statement!r} fails:"
        " the file is started by itself, as part of no package: write"
        f" {instead!r}, modules beside the file are found"
    )


def test_a_relative_import_with_another_way_out_is_no_problem(
    tmp_path: Path,
) -> None:
    code = "try:\n    from . import near\nexcept ImportError:\n    import near\n"
    assert load_experiment(written(tmp_path, code=code)).controller


def test_the_value_of_an_option_is_no_option(tmp_path: Path) -> None:
    options = "[--config-file, ofp-lab.conf, --user-flags, ctl-flags.py]"
    path = written(tmp_path, f"{{app: mine.py, options: {options}}}")
    controller = load_experiment(path).controller
    assert controller is not None
    assert controller.options[1::2] == ("ofp-lab.conf", "ctl-flags.py")


@pytest.mark.parametrize("code", ["return 1\n", "x = '\\d'\nbreak\n"])
def test_what_only_the_compiler_refuses(tmp_path: Path, code: str) -> None:
    (problem,) = problems(written(tmp_path, code=code))
    assert f"mine.py:{code.count(chr(10))}:" in problem


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "mine.py").write_bytes(b"x = 1\0\n")
    (problem,) = problems(path)
    assert "mine.py" in problem
    assert "null bytes" in problem


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "{app: ./other.py}",
            "one.yaml:2:19: controller.app: there is no file './other.py'",
        ),
        (
            "{app: 5}",
            "one.yaml:2:19: controller.app: must be a text, not 5",
        ),
        (
            "{}",
            "one.yaml:2:13: controller.app: is required: a Ryu or os-ken application",
        ),
        (
            "./mine.py",
            "one.yaml:2:13: controller: must be a mapping with the keys app",
        ),
        ("{app: ./mine.py, port: 1}", "controller.port: is an unknown key"),
        (
            "{app: mine.py, python: ./nowhere}",
            "controller.python: there is no interpreter at ",
        ),
        (
            f"{{app: mine.py, python: {'x' * 300}}}",
            "one.yaml:2:36: controller.python: there is no interpreter at ",
        ),
        (
            '{app: mine.py, python: "a\\0b"}',
            "one.yaml:2:36: controller.python: there is no interpreter at ",
        ),
        (
            "{app: mine.py, packages: needs.txt}",
            "controller.packages: there is no file 'needs.txt'",
        ),
        (
            "{app: mine.py, packages: mine.py, confined: true}",
            "controller.packages: cannot stand beside confined: make an",
        ),
        (
            "{app: mine.py, packages: mine.py, python: /bin/sh}",
            "controller.packages: cannot stand beside python: make an",
        ),
        (
            "{app: []}",
            "one.yaml:2:19: controller.app: names no application",
        ),
        (
            "{app: [mine.py, ryu.app.ofctl_rest, nope.py]}",
            "one.yaml:2:49: controller.app[2]: there is no file 'nope.py'",
        ),
        (
            "{app: mine.py, options: {ofp-tcp-listen-port: 77}}",
            "--ofp-tcp-listen-port=77: the testbed has the port for switches",
        ),
        (
            "{app: mine.py, options: {verbose: [1]}}",
            "controller.options: verbose must be a text, a number, true or false",
        ),
        (
            "{remote: 127.0.0.1:6653}",
            "must be like tcp:127.0.0.1:6653, not '127.0.0.1:6653'",
        ),
        (
            "{remote: tcp:127.0.0.1:66530}",
            "controller.remote: must be like tcp:127.0.0.1:6653",
        ),
        (
            "{remote: tcp:127.0.0.1:0}",
            "controller.remote: must be like tcp:127.0.0.1:6653",
        ),
        (
            "{remote: tcp:127.0.0..1:6653}",
            "controller.remote: must be like tcp:127.0.0.1:6653",
        ),
        (
            "{remote: tcp:127.0.0.1:6653, app: mine.py}",
            "controller.app: cannot stand beside remote: leave one out",
        ),
    ],
)
def test_sections_that_are_refused(
    tmp_path: Path, section: str, expected: str
) -> None:
    (problem,) = problems(written(tmp_path, section))
    assert expected in problem


@pytest.mark.parametrize(
    ("written_as", "arguments"),
    [
        (
            "--observe-links --wsapi-port 81",
            "--observe-links --wsapi-port 81",
        ),
        ("[--observe-links, --verbose]", "--observe-links --verbose"),
        (
            "{observe_links: true, explicit-drop: false, wsapi-port: 81}",
            "--observe-links --noexplicit-drop --wsapi-port=81",
        ),
    ],
)
def test_options_are_arguments_whatever_their_form(
    tmp_path: Path, written_as: str, arguments: str
) -> None:
    section = (
        f"{{app: [mine.py, ryu.app.ofctl_rest], options: {written_as}}}"
    )
    choice = load_experiment(written(tmp_path, section)).controller
    assert choice is not None
    assert choice.options == tuple(arguments.split())
    assert choice.apps == (str(tmp_path / "mine.py"), "ryu.app.ofctl_rest")


@pytest.mark.parametrize("named", ["apps", "apps/bin/python"])
def test_an_environment_is_its_interpreter(
    tmp_path: Path, named: str
) -> None:
    venv.create(tmp_path / "apps", symlinks=True)
    section = f"{{app: mine.py, python: {named}}}"
    choice = load_experiment(written(tmp_path, section)).controller
    assert choice is not None
    assert choice.python == str(tmp_path / "apps" / "bin" / "python")


def test_a_folder_is_no_interpreter(tmp_path: Path) -> None:
    (tmp_path / "apps" / "bin" / "python").mkdir(parents=True)
    section = "{app: mine.py, python: apps}"
    (problem,) = problems(written(tmp_path, section))
    assert f"there is no interpreter at {tmp_path}/apps" in problem


def test_packages_are_a_file_beside_the_experiment(tmp_path: Path) -> None:
    needs = tmp_path / "needs.txt"
    needs.write_text("networkx\n")
    section = "{app: mine.py, packages: needs.txt}"
    experiment = load_experiment(written(tmp_path, section))
    assert experiment.controller is not None
    assert experiment.controller.packages == str(needs)
    assert experiment.resolved["controller"]["packages"] == str(needs)


def test_a_running_controller_is_an_address(tmp_path: Path) -> None:
    section = "{remote: tcp:127.0.0.1:6653}"
    experiment = load_experiment(written(tmp_path, section))
    assert str(experiment.controller) == "tcp:127.0.0.1:6653"
    assert experiment.resolved["controller"] == {
        "remote": "tcp:127.0.0.1:6653"
    }


def test_the_schema_knows_it() -> None:
    schema = experiment_schema()
    validator = Draft202012Validator(
        {**schema["properties"]["controller"], "$defs": schema["$defs"]}
    )
    assert validator.is_valid({"app": "./mine.py"})
    assert not validator.is_valid({"app": 5})
    assert not validator.is_valid({})
    assert validator.is_valid({"app": ["./mine.py", "ryu.app.ofctl_rest"]})
    assert validator.is_valid({"remote": "tcp:127.0.0.1:6653"})
    assert not validator.is_valid({"remote": "127.0.0.1"})


def test_validate_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["validate", str(written(tmp_path, code="x =\n"))]) == 2
    assert (
        "mine.py:1:4: controller.app: is not Python"
        in capsys.readouterr().err
    )


def test_a_plan_says_whose_the_flows_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["plan", str(written(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert out.count(f"# flows: those of {tmp_path}/mine.py\n") == 2
    assert "actions=" not in out
