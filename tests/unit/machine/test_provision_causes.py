"""The cause and the remedy that provision.sh tells for each way in which a step fails.

The texts are those of Debian 12's and 13's own tools; `tests/machine/provision_failures` makes the
same failures there for real.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CAUSES = {
    cause["name"]: cause
    for cause in yaml.safe_load((Path(__file__).parent / "provision_causes.yaml").read_text())
}
MODULE = [name for name in CAUSES if CAUSES[name]["step"] == "module"]
STEPS = [name for name in CAUSES if name not in MODULE]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of provision.sh and the locks alone, with a folder of fake commands."""
    shutil.copy(ROOT / "provision.sh", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "bin").mkdir()
    return tmp_path


def command(checkout: Path, name: str, script: str) -> None:
    fake = checkout / "bin" / name
    fake.parent.mkdir(parents=True, exist_ok=True)
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)


def with_provision(
    checkout: Path, script: str, output: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a script that has provision.sh's functions, with all that it writes in ``checkout``."""
    prelude = f"""
        . {checkout}/provision.sh
        STATE={checkout}/state LOG={checkout}/log LOCK={checkout}/lock PYTHON={sys.executable}
        MODULES={checkout}/modules OVS_LOG={checkout}
        mkdir -p "$STATE"; : >>"$LOG"
    """
    return subprocess.run(
        ["bash", "-c", prelude + script],
        input=output,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": f"{checkout}/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )


@pytest.mark.parametrize("name", STEPS)
def test_a_failure_is_told_with_its_cause_and_its_remedy(name: str, checkout: Path) -> None:
    cause = CAUSES[name]
    script = f'explain {cause["step"]} "$(cat)"; echo "$WHY"; echo "$TODO"'
    told = with_provision(checkout, script, cause["output"])
    assert told.returncode == 0, told.stderr
    why, todo = told.stdout.splitlines()
    assert cause["why"] in why
    assert cause["todo"] in todo
    assert "%s" not in told.stdout


@pytest.mark.parametrize("name", MODULE)
def test_the_kernels_module_is_missed_for_a_reason(name: str, checkout: Path) -> None:
    (checkout / "modprobe.txt").write_text(CAUSES[name]["output"])
    command(checkout, "modprobe", f"cat {checkout}/modprobe.txt >&2; exit 1")
    container = str(CAUSES[name].get("container", False)).lower()
    told = with_provision(checkout, f"in_container() {{ {container}; }}; module_fault")
    assert told.returncode == 0, told.stderr
    assert CAUSES[name]["why"] in told.stdout


def test_a_kernel_without_modules_beside_anothers_was_replaced(checkout: Path) -> None:
    command(checkout, "modprobe", "echo not found in directory /lib/modules/x; exit 1")
    (checkout / "modules/6.1.0-other").mkdir(parents=True)
    script = "in_container() { false; }; module_fault"
    assert "was replaced: reboot" in with_provision(checkout, script).stdout
    (checkout / "modules" / os.uname().release).mkdir()
    assert "has no openvswitch module" in with_provision(checkout, script).stdout


def test_a_failed_step_ends_with_cause_and_remedy(checkout: Path) -> None:
    command(checkout, "dpkg-query", "exit 0")
    command(
        checkout,
        "apt-get",
        'case "$*" in *update) exit 0;; esac; echo "E: Unable to locate package tcc"; exit 100',
    )
    told = with_provision(checkout, "install_packages tcc; echo continued")
    assert told.returncode == 3
    what, why, todo = told.stderr.splitlines()[-3:]
    assert what == "provision: could not finish: installing Debian packages: tcc"
    assert why == "provision: why: the package sources have no tcc"
    assert todo.startswith("provision: what to do: Debian: 'main' in /etc/apt/sources.list*; ")
    assert "continued" not in told.stdout


def test_an_earlier_failures_text_is_not_this_ones(checkout: Path) -> None:
    (checkout / "log").write_text("E: dpkg was interrupted, you must manually run\n")
    told = with_provision(checkout, "quietly packages x false")
    assert told.returncode == 3
    assert "exit code 1, no output" in told.stderr


@pytest.mark.needs("root")
def test_what_the_owner_runs_bears_the_owners_names(checkout: Path) -> None:
    """By root's, pytest made a folder in /tmp that root then refused."""
    nobody = pwd.getpwnam("nobody")
    script = "as_owner sh -c 'echo \"$(id -u) $USER $LOGNAME $HOME\"'"
    told = with_provision(checkout, f"OWNER={nobody.pw_uid}; {script}")
    assert told.stdout == f"{nobody.pw_uid} nobody nobody {nobody.pw_dir}\n"
    told = with_provision(checkout, f"OWNER=64321; {script}")
    assert told.stdout == "64321 64321 64321 /nonexistent\n"


def test_a_failed_step_is_told_in_words_and_with_its_log(checkout: Path) -> None:
    command(checkout, "start", "echo it does not start; exit 7")
    (checkout / "ovs-vswitchd.log").touch()
    told = with_provision(checkout, 'quietly switch "starting it" logged_by_ovs start')
    assert told.returncode == 3
    todo = f"correct what the output names (all of it: {checkout}/log), then call this again"
    assert told.stderr.splitlines() == [
        "provision: starting it",
        f"provision: this failed; the end of its output (all of it: {checkout}/log):",
        "    | it does not start",
        "provision: could not finish: starting it",
        "provision: why: the cause is not known; exit code 1, last line: it does not start",
        f"provision: what to do: {todo}; if it stays, report it with that file",
    ]


def test_pip_is_asked_with_the_locks_hashes_and_explained(checkout: Path) -> None:
    (checkout / "said.txt").write_text(CAUSES["pip: not in the lock"]["output"])
    command(
        checkout,
        "../.venv/bin/python",
        f'case "$*" in *mininet*) exit 0;; esac\ncat {checkout}/said.txt; exit 1',
    )
    told = with_provision(checkout, 'set_stamp .python "$(stamp)"; install_python')
    assert told.returncode == 3
    assert "pip --require-hashes -r" in (checkout / "log").read_text()
    assert "why: the lock has no legacy-cgi>=2.6 for Python 3" in told.stderr


def test_a_full_file_system_is_the_cause_of_what_says_nothing(checkout: Path) -> None:
    left(checkout, "900M 7777 9999 /", "3M 7777 9999 /tmp")
    told = with_provision(checkout, 'explain environment "Command returned 1"; echo "$WHY"')
    assert told.stdout == "most likely no space: /tmp has 3 MiB left\n"


FULL = 'explain python "No space left on device"; echo "$WHY"; echo "$TODO"'


def left(checkout: Path, *rows: str) -> None:
    """Have ``df`` print these rows of MiB and inodes available, inodes in total, mount point."""
    lines = "\n".join(("Avail IFree Inodes Mounted on", *rows))
    command(checkout, "df", f"cat <<'ROWS'\n{lines}\nROWS")


def test_no_space_is_told_truly_where_there_is_space_again(checkout: Path) -> None:
    left(checkout, "70000M 7777 9999 /", "3000M 7777 9999 /my disk")
    told = with_provision(checkout, FULL).stdout
    assert (
        "a file system had too little left; by now, of those written to, /my disk has 3000 MiB"
        in told
    )


def test_a_file_system_without_inodes_is_full(checkout: Path) -> None:
    left(checkout, "20M 7777 9999 /", "3000M 7 9999 /small")
    assert "/small has 7 inodes left" in with_provision(checkout, FULL).stdout
    silent = with_provision(checkout, 'explain environment "Command returned 1"; echo "$WHY"')
    assert silent.stdout == "most likely no space: /small has 7 inodes left\n"


def test_figures_that_df_lacks_are_no_cause(checkout: Path) -> None:
    left(checkout, "- - - /proc", "900M 0 0 /btrfs", "800M - - /vfat")
    assert "of those written to, /vfat has 800 MiB left" in with_provision(checkout, FULL).stdout
    left(checkout)
    assert with_provision(checkout, FULL).stdout.startswith(
        "no space: a file system had too little left\n"
    )


def test_pips_cache_is_purged_by_a_pip_that_is_there(checkout: Path) -> None:
    assert "purge" not in with_provision(checkout, FULL).stdout
    command(checkout, "../.venv/bin/pip", "exit 0")
    told = with_provision(checkout, FULL).stdout
    assert f"apt-get clean; {checkout}/.venv/bin/pip cache purge; " in told


@pytest.mark.parametrize("step", ["packages", "python", "switch"])
def test_a_step_that_the_kernel_ended_is_told(step: str, checkout: Path) -> None:
    (checkout / "end.sh").write_text("kill -9 $$\n")
    told = with_provision(checkout, f"quietly {step} x bash {checkout}/end.sh")
    assert told.returncode == 3
    assert "why: the kernel ended it, most likely for want of memory\n" in told.stderr
    assert "free -m" in told.stderr
    assert "swapon /swap), then call this again" in told.stderr


def test_a_folder_that_is_not_there_hides_no_cause(checkout: Path) -> None:
    told = with_provision(checkout, "TMPDIR=/not/there; quietly python x false")
    assert told.returncode == 3
    assert "why: the cause is not known" in told.stderr


def test_a_kernel_that_an_update_replaced_is_told(checkout: Path) -> None:
    command(checkout, "uname", "echo 6.1.0-1-amd64")
    command(checkout, "modprobe", "echo not found in directory /lib/modules/x; exit 1")
    outside = "compgen() { true; }; in_container() { false; }; module_fault"
    replaced = with_provision(checkout, outside)
    assert "6.1.0-1-amd64 was replaced: reboot" in replaced.stdout


@pytest.mark.parametrize("mark", ["detected", "file"])
def test_in_a_container_nobody_is_told_to_reboot(mark: str, checkout: Path) -> None:
    command(checkout, "modprobe", "echo not found in directory /lib/modules/x; exit 1")
    command(checkout, "systemd-detect-virt", f"[ {mark} = detected ]")
    marks = f"CONTAINER_MARKS=(/not/there {checkout if mark == 'file' else ''})"
    told = with_provision(checkout, f"compgen() {{ true; }}; {marks}; module_fault").stdout
    assert "this is a container, without the modules of kernel " in told
    assert "reboot" not in told


@pytest.mark.parametrize("found", [1, 127])
def test_a_machine_without_a_containers_marks_is_none(found: int, checkout: Path) -> None:
    command(checkout, "systemd-detect-virt", f"exit {found}")
    script = "CONTAINER_MARKS=(/not/there); in_container || echo none"
    assert with_provision(checkout, script).stdout == "none\n"


def test_what_open_vswitch_logs_meanwhile_is_part_of_the_output(checkout: Path) -> None:
    logs = checkout / "ovs-vswitchd.log"
    logs.write_text("2020-01-01T00:00:00.000Z|1|lockfile|WARN|already locked by pid 1\n")
    command(checkout, "start", f"echo $(date -u +%FT%T.999Z) new >>{logs}; exit 1")
    told = with_provision(checkout, f"OVS_LOG={checkout}; logged_by_ovs start || echo failed")
    assert "new" in told.stdout
    assert "already locked" not in told.stdout
    assert told.stdout.endswith("failed\n")


MODPROBE = "MODPROBE_SETTINGS=({0}/etc {0}/run {0}/none); module_fault"


@pytest.mark.parametrize("folder", ["etc", "run"])
def test_the_file_that_blocks_the_module_is_named(folder: str, checkout: Path) -> None:
    command(checkout, "modprobe", "echo Error running install command; exit 1")
    for name, line in {
        f"{folder}/blocks.conf": "install  openvswitch /bin/false",
        "etc/comment.conf": "# install openvswitch /bin/false",
        "etc/other.conf": "install openvswitch_gre /bin/false",
        "run/unread.txt": "install openvswitch /bin/false",
    }.items():
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text(f"{line}\n")
    told = with_provision(checkout, MODPROBE.format(checkout))
    assert told.stdout == (
        f"modprobe is told not to load openvswitch, by {checkout}/{folder}/blocks.conf\n"
    )


def test_a_module_that_no_named_file_blocks_is_told_with_where_to_look(checkout: Path) -> None:
    command(checkout, "modprobe", "echo Error running install command; exit 1")
    told = with_provision(checkout, MODPROBE.format(checkout))
    assert told.stdout.endswith(", by an install line (modprobe --showconfig prints it)\n")


# --------------------------------------------------------------------- packages that install added

DPKG = """\
[ "$*" = "-W -f \\${db:Status-Status} \\${Package}\\\\n" ] && exec cat $HERE/packages.txt
grep -q "^installed $4$" $HERE/packages.txt && echo installed"""


def with_packages(checkout: Path, then: str) -> subprocess.CompletedProcess[str]:
    """With a ``dpkg-query`` that knows ``packages.txt``, and an ``apt-get`` that is ``apt``."""
    command(checkout, "dpkg-query", DPKG.replace("$HERE", str(checkout)))
    command(checkout, "apt-get", f". {checkout}/apt")
    return with_provision(checkout, then)


def test_packages_of_a_failed_installation_are_removed_by_uninstall(checkout: Path) -> None:
    packages = checkout / "packages.txt"
    packages.write_text("installed base\nconfig-files gone\n")
    (checkout / "apt").write_text(
        f'case "$*" in *install*) echo half-configured tcc >>{packages}\n'
        f"    echo installed libtcc >>{packages}; exit 100;; esac\n"
    )
    assert with_packages(checkout, "install_packages tcc").returncode == 3
    (checkout / "apt").write_text(
        f'case "$*" in *install*) echo installed tcc >>{packages};; '
        f'-s*) ;; *remove*) echo "$*" >{checkout}/removed;; esac\n'
    )
    done = with_packages(checkout, "install_packages tcc && remove_packages")
    assert done.returncode == 0, done.stderr
    assert (checkout / "removed").read_text().split("remove ")[1] == "libtcc tcc\n"
    assert not (checkout / "state/before").exists()


def test_packages_of_a_killed_installation_are_known(checkout: Path) -> None:
    (checkout / "packages.txt").write_text("installed base\ninstalled tcc\n")
    (checkout / "apt").write_text("exit 0\n")
    done = with_packages(checkout, 'echo base >"$STATE/before"; install_packages mininet')
    assert done.returncode == 0, done.stderr
    assert (checkout / "state/packages").read_text() == "tcc\n"


def test_what_uninstall_cannot_simulate_is_explained(checkout: Path) -> None:
    (checkout / "packages.txt").write_text("installed tcc\n")
    (checkout / "apt").write_text("echo 'E: Unmet dependencies. Try it'; exit 100\n")
    told = with_packages(checkout, 'echo tcc >"$STATE/packages"; remove_packages')
    assert told.returncode == 3
    assert "what to do: sudo apt-get --fix-broken install" in told.stderr


@pytest.mark.parametrize("broken", ["ovs-vsctl", "ovs-ctl"])
def test_uninstall_continues_where_open_vswitch_does_not(broken: str, checkout: Path) -> None:
    for name in ("ovs-vsctl", "ovs-ctl"):
        fails = 'case "$*" in *list-br) exit 0;; esac; echo no answer >&2; exit 1'
        command(checkout, name, fails if name == broken else "exit 0")
    (checkout / ".venv").mkdir()
    told = with_provision(
        checkout,
        f"COMMAND={checkout}/none OVS_SCRIPTS={checkout}/bin; touch $STATE/userspace-tso\n"
        "daemon_pid() { echo 1; }; verb_uninstall",
    )
    assert told.returncode == 0, told.stderr
    assert "no answer" in told.stderr
    assert told.stderr.endswith("provision: uninstalled; run folders (runs/) are left alone\n")
    assert not (checkout / "state").exists()
    assert not (checkout / ".venv").exists()


# ----------------------------------------------------------------------- files that it cannot write

WRITES = {
    "tee": ("set_stamp .run x; echo continued", "writing to "),
    "mkdir": ("open_log; echo continued", "making the folder "),
    "touch": ("open_log; echo continued", "opening the lock "),
    "chmod": ("COMMAND=$STATE/testbed; install_command; echo continued", "putting testbed on "),
    "mv": ("dpkg-query() { :; }; install_packages tcc; echo continued", "listing the Debian "),
}
STATES = {
    "No space left on device": ("why: no space: a file system had too little left", "free some"),
    "Read-only file system": ("is mounted read-only", "sudo mount -o remount,rw FOLDER"),
}


@pytest.mark.parametrize("error", STATES)
@pytest.mark.parametrize("name", WRITES)
def test_a_target_that_cannot_be_written_is_told(name: str, error: str, checkout: Path) -> None:
    (script, what), (why, todo) = WRITES[name], STATES[error]
    command(checkout, f"../broken/{name}", f"echo '{name}: x: {error}' >&2; exit 1")
    told = with_provision(checkout, f"PATH={checkout}/broken:$PATH; {script}")
    assert told.returncode == 3
    assert told.stdout == ""
    assert f"    | {name}: x: {error}\n" in told.stderr
    assert f"could not finish: {what}" in told.stderr
    assert why in told.stderr
    assert todo in told.stderr
    assert not (checkout / "state/testbed.new").exists()


def test_a_log_on_a_full_device_is_told(checkout: Path) -> None:
    told = with_provision(checkout, "LOG=/dev/full; quietly python x true; echo continued")
    assert (told.returncode, told.stdout) == (3, "")
    assert "could not finish: writing to /dev/full" in told.stderr
    assert "why: no space" in told.stderr


def test_the_locks_folder_is_made_where_there_is_none(checkout: Path) -> None:
    told = with_provision(checkout, f"LOCK={checkout}/new/lock; open_log; echo continued")
    assert (told.returncode, told.stdout, told.stderr) == (0, "continued\n", "")
    assert (checkout / "new/lock").exists()


# ------------------------------------------------------------------------------ the checkout's path


@pytest.mark.parametrize("name", ["it's", "a b", "$(touch injected)", "'; touch injected; '"])
def test_a_checkout_of_any_name_is_called(name: str, checkout: Path) -> None:
    odd = checkout / name
    shutil.copytree(checkout, odd, ignore=shutil.ignore_patterns(name))
    command(odd, "../.venv/bin/testbed", 'echo "called: $*"')
    script = f"""
        cd {checkout}
        . {shlex.quote(str(odd))}/provision.sh
        COMMAND={checkout}/testbed LOG={checkout}/log
        install_command; $COMMAND 'a b'
        eval "printf '%s\n' $SHOWN_VENV"; id() {{ echo 1; }}; need_root install
    """
    told = with_provision(checkout, script)
    assert told.stdout == f"called: a b\n{odd}/.venv\n"
    assert told.returncode == 3
    command_told = told.stderr.splitlines()[-1].removeprefix("provision: what to do: ")
    assert shlex.split(command_told)[1] == f"{odd}/provision.sh"
    assert not (checkout / "injected").exists()


# ------------------------------------------------------------------------ before the first change

RELEASES = {
    "Debian 12": ('ID=debian\nVERSION_ID="12"', ""),
    "Debian 13": ('ID=debian\nVERSION_ID="13"', ""),
    "Ubuntu 24.04": (
        'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"',
        "Ubuntu 24.04 is untested",
    ),
}
OTHERS = {
    "Debian 11": 'ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian 11"',
    "Debian testing": 'ID=debian\nPRETTY_NAME="Debian forky/sid"',
    "Ubuntu 22.04": 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04"',
    "a derivative": 'ID=linuxmint\nID_LIKE=debian\nVERSION_ID="12"\nPRETTY_NAME="Linux Mint"',
    "Fedora": 'ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42"',
}


def on_release(checkout: Path, text: str | None, then: str) -> subprocess.CompletedProcess[str]:
    release = checkout / "os-release"
    if text is not None:
        release.write_text(text + "\n")
    return with_provision(checkout, f"OS_RELEASE={release}; {then}")


@pytest.mark.parametrize("name", RELEASES)
def test_a_known_release_is_let_through(name: str, checkout: Path) -> None:
    text, said = RELEASES[name]
    told = on_release(checkout, text, "check_release; echo continued")
    assert told.stdout == "continued\n"
    assert (said in told.stderr) if said else (told.stderr == "")


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("verb", ["install", "run", "test"])
def test_another_release_is_refused_before_anything_else(
    name: str, verb: str, checkout: Path
) -> None:
    told = on_release(
        checkout, OTHERS[name], f"need_root() {{ echo continued; exit 0; }}; main {verb}"
    )
    assert told.returncode == 3
    assert told.stdout == ""
    refusal, remedy = told.stderr.splitlines()
    assert "installs on Debian 12 and 13; this is " + OTHERS[name].split('"')[-2] in refusal
    assert "vagrant up" in remedy
    assert f"pip install {checkout}" in remedy


def test_a_machine_without_a_release_is_refused_by_its_kernels_name(checkout: Path) -> None:
    told = on_release(checkout, None, "check_release")
    assert told.returncode == 3
    assert "this is Linux" in told.stderr


def test_another_release_is_accepted_where_asked(checkout: Path) -> None:
    then = "HOSENET_ANY_RELEASE=1; check_release; echo continued"
    told = on_release(checkout, OTHERS["Fedora"], then)
    assert told.stdout == "continued\n"
    assert "Fedora Linux 42 is unknown; continuing" in told.stderr


@pytest.mark.parametrize("verb", ["help", "doctor"])
def test_help_and_doctor_ask_for_no_release(verb: str, checkout: Path) -> None:
    told = on_release(checkout, OTHERS["Fedora"], f"main {verb}")
    assert "this is Fedora" not in told.stderr
    assert told.returncode == (0 if verb == "help" else 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ID=ubuntu\nVERSION_ID=24.04", "ubuntu 24.04 is untested"),
        ("ID=arch", "this is arch\n"),
        ("", "this is an unknown system\n"),
    ],
)
def test_a_release_without_a_name_is_told_by_its_id(text: str, said: str, checkout: Path) -> None:
    assert said in on_release(checkout, text, "check_release").stderr


REINSTALLED = "sudo apt-get install --reinstall python3-minimal python3"


@pytest.mark.parametrize("name", [*RELEASES, "Debian 11", "Fedora"])
def test_another_python_is_told_with_what_its_release_can_do(name: str, checkout: Path) -> None:
    command(checkout, "python3", '[ "$1" = --version ] && echo Python 3.14.0')
    text = RELEASES[name][0] if name in RELEASES else OTHERS[name]
    told = on_release(checkout, text, f"PYTHON={checkout}/bin/python3; check_python")
    assert told.returncode == 3
    assert (REINSTALLED in told.stderr) is (name in RELEASES)
    assert ("vagrant up" in told.stderr) is (name not in RELEASES)


def test_the_page_has_the_same_remedy_for_another_python() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    row = next(line for line in page.splitlines() if "and the locks are for Python" in line)
    assert f"`{REINSTALLED}`" in row


@pytest.mark.parametrize(
    ("minor", "accepted"),
    [(9, False), (10, False), (11, True), (12, True), (13, True), (14, False)],
)
def test_pythons_of_the_locks_are_accepted(minor: int, accepted: bool, checkout: Path) -> None:
    fake = f"import sys; sys.version_info = (3, {minor}, 2); "
    number = f"3.{minor}"
    command(
        checkout,
        "python3",
        f'[ "$1" != --version ] || {{ echo Python {number}.2; exit; }}\n'
        f'exec {sys.executable} -c "{fake}$2"',
    )
    told = with_provision(checkout, f"PYTHON={checkout}/bin/python3; check_python; echo continued")
    assert (told.stdout == "continued\n") is accepted
    if not accepted:
        assert told.returncode == 3
        assert (
            f"is Python {number}.2, and the locks are for Python 3.11, 3.12 and 3.13" in told.stderr
        )


def test_too_little_space_is_told_before_the_first_change(checkout: Path) -> None:
    told = with_provision(
        checkout, f"need_space {checkout}/not/there 999999999 /usr 1; echo continued"
    )
    assert told.returncode == 3
    assert told.stdout == ""
    assert "and the installation needs " in told.stderr


def test_space_that_is_there_is_no_matter(checkout: Path) -> None:
    told = with_provision(checkout, f"need_space {checkout} 0 /usr 0; need_space; echo continued")
    assert (told.returncode, told.stdout, told.stderr) == (0, "continued\n", "")


def test_paths_of_one_file_system_need_their_sum(checkout: Path) -> None:
    command(
        checkout, "df", 'case "$*" in *target*) echo T; echo /;; *) echo A; echo 3072000;; esac'
    )
    both = with_provision(checkout, f"need_space {checkout} 2000 /usr 2000")
    one = with_provision(checkout, f"need_space {checkout} 2000")
    assert (both.returncode, one.returncode) == (3, 0)
    assert "/ has 3000 MiB left, and the installation needs 4000 MiB there" in both.stderr


@pytest.mark.parametrize("known", ["echo A; echo -", "exit 1", "echo A; echo"])
def test_space_that_df_does_not_know_is_no_matter(known: str, checkout: Path) -> None:
    command(checkout, "df", f'case "$*" in *target*) echo T; echo /;; *) {known};; esac')
    told = with_provision(checkout, f"need_space {checkout} 2000; echo continued")
    assert (told.returncode, told.stdout, told.stderr) == (0, "continued\n", "")


def test_a_mount_point_that_df_does_not_know_hides_no_lack(checkout: Path) -> None:
    command(checkout, "df", 'case "$*" in *target*) echo T; echo -;; *) echo A; echo 3072;; esac')
    told = with_provision(checkout, f"need_space {checkout}/not/there 2000")
    assert told.returncode == 3
    assert f"{checkout} has 3 MiB left, and the installation needs 2000 MiB there" in told.stderr


# ------------------------------------------------------------- the failures made in a Debian root

FAILURES = ROOT / "tests" / "machine" / "provision_failures"


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``tests/machine/provision_failures`` as root would have it, with no command on the PATH."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("provision_failures", str(FAILURES))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    made = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, made)
    loader.exec_module(made)
    monkeypatch.setattr(made.os, "geteuid", lambda: 0)
    monkeypatch.setattr(made.signal, "signal", lambda *_: None)
    monkeypatch.setenv("PATH", "/not/there")
    return made


def test_a_missing_debootstrap_is_one_sentence(
    failures: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.main(["--only", "not root"]) == 3
    said = "there is no command debootstrap here: sudo apt-get install debootstrap"
    assert capsys.readouterr().err == f"failures: {said}\n"


def test_an_unknown_failure_is_refused_with_the_known_ones(
    failures: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        failures.main(["--only", "no such failure"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    for failure in (*failures.BARE, *failures.INSTALLED):
        assert failure.name in error


@pytest.mark.parametrize("path", [FAILURES, ROOT / "provision.sh"], ids=lambda path: path.name)
def test_no_archives_or_indexs_host_is_named(path: Path) -> None:
    hosts = r"[a-z]\.debian\.org|pypi\.org|python[h]osted|npm[j]s"
    assert not re.findall(hosts, path.read_text())


def test_no_remedy_needs_what_is_not_installed_yet() -> None:
    """Locks are made with `uv`, a test tool, and are the same for every Python."""
    assert "make lock" not in (ROOT / "provision.sh").read_text()
    assert "make lock" not in (ROOT / "docs" / "troubleshooting.md").read_text()
