"""The Vagrantfile, evaluated with a stand-in for Vagrant that records what it is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributions import ROOT

VAGRANTFILE = ROOT / "Vagrantfile"
needs_ruby = pytest.mark.skipif(
    shutil.which("ruby") is None, reason="no ruby"
)

# Each call is recorded with its receiver's path; an assignment is a call, its name without "=".
STAND_IN = r"""
require "json"
CALLS = []
class Recorder < BasicObject
  def initialize(path) = @path = path
  def method_missing(name, *given, **named, &block)
    word = name.to_s.chomp("=")
    ::CALLS << [[*@path, word].join("."), given, named] unless given.empty? && named.empty?
    return ::Recorder.new([*@path, word]) unless block
    block.call(*[[*@path, *given], [*@path, *given, "override"]].map { |p| ::Recorder.new(p) }
      .first(block.arity))
  end
  def respond_to_missing?(*) = true
end
module Vagrant
  def self.configure(version) = yield(::Recorder.new(["config"]))
end
load ARGV[0]
puts JSON.generate(CALLS)
"""

Call = tuple[str, list[Any], dict[str, Any]]


def evaluated(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        n: v for n, v in os.environ.items() if not n.startswith("HOSENET")
    }
    return subprocess.run(
        ["ruby", "-e", STAND_IN, str(VAGRANTFILE)],
        env={**kept, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def calls(**environment: str) -> list[Call]:
    done = evaluated(**environment)
    assert done.returncode == 0, done.stderr
    return [
        (name, given, named)
        for name, given, named in json.loads(done.stdout)
    ]


def given(found: list[Call], name: str) -> list[Any]:
    return [values[0] for one, values, _ in found if one == name]


@needs_ruby
@pytest.mark.parametrize("release", ["", "bookworm", "trixie"])
@pytest.mark.parametrize("provider", ["virtualbox", "libvirt"])
def test_each_release_has_a_box_of_a_fixed_version(
    release: str, provider: str
) -> None:
    found = calls(**({"HOSENET_BOX": release} if release else {}))
    (box,) = given(found, f"config.vm.{provider}.override.vm.box")
    (version,) = given(
        found, f"config.vm.{provider}.override.vm.box_version"
    )
    number = "13" if release == "trixie" else "12"
    assert f"{release or 'bookworm'}64" in box or box.endswith(
        f"/debian-{number}"
    )
    assert version.replace(".", "").isdigit()
    assert given(found, f"config.vm.{provider}.cpus") == [2]
    assert given(found, f"config.vm.{provider}.memory") == [4096]


@needs_ruby
def test_another_box_is_taken_at_its_own_version_or_none() -> None:
    found = calls(
        HOSENET_BOX="somebody/debian", HOSENET_BOX_VERSION="1.2.3"
    )
    assert given(found, "config.vm.libvirt.override.vm.box") == [
        "somebody/debian"
    ]
    version = "config.vm.libvirt.override.vm.box_version"
    assert given(found, version) == ["1.2.3"]
    assert given(calls(HOSENET_BOX="somebody/debian"), version) == []


@needs_ruby
def test_a_release_without_a_box_is_refused_with_the_choice() -> None:
    refused = evaluated(HOSENET_BOX="buster")
    assert refused.returncode == 1
    assert (
        "HOSENET_BOX is buster: it must be bookworm or trixie"
        in refused.stderr
    )


@needs_ruby
def test_the_forwarded_port_is_open_to_this_host_alone() -> None:
    ports = [
        named for name, _, named in calls() if name == "config.vm.network"
    ]
    assert ports == [{"guest": 8000, "host": 8000, "host_ip": "127.0.0.1"}]


@needs_ruby
def test_run_folders_and_the_environment_are_in_no_synced_folder() -> None:
    folders = [
        (g, n)
        for name, g, n in calls()
        if name == "config.vm.synced_folder"
    ]
    copied = [(g, n) for g, n in folders if not n.get("disabled")]
    ((source, target), options) = copied[0]
    assert len(copied) == 1
    assert (source, target, options["type"]) == (
        ".",
        "/home/vagrant/hosenet",
        "rsync",
    )
    assert {".venv/", "runs/"} <= set(options["rsync__exclude"])


@needs_ruby
def test_the_virtual_machine_runs_the_script_that_vagrant_would(
    tmp_path: Path,
) -> None:
    """tests/vm/guest takes the script out of the Vagrantfile by sed, which knows no Ruby."""
    (script,) = [
        n["inline"]
        for name, _, n in calls()
        if name == "config.vm.provision"
    ]
    steps = (ROOT / "tests/vm/guest").read_text("utf-8")
    (line,) = [
        one for one in steps.splitlines() if "SHELL" in one and "sed" in one
    ]
    command = line.strip().replace(
        "/tmp/vagrant-shell",  # noqa: S108
        str(tmp_path / "script"),
    )
    subprocess.run(
        ["bash", "-c", command], cwd=ROOT, check=True, timeout=60
    )
    taken = [
        one.strip()
        for one in (tmp_path / "script").read_text("utf-8").splitlines()
    ]
    assert taken == [one.strip() for one in script.splitlines()]
    assert "/home/vagrant/hosenet/provision.sh install" in taken
