"""Failed steps of provision.sh: the step, its last lines, its hint, and what is left behind."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.backends.emu.cgroups import lives

ROOT = Path(__file__).parents[3]
STEPS = {
    "packages": "sources.list",
    "environment": "python3-venv",
    "python": "pip config list",
    "switch": "ovs-vswitchd.log",
    "command": "findmnt",
}
"""Steps of provision.sh, and a part of the hint of each."""


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
    return subprocess.run(
        words(checkout, script),
        input=output,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(checkout),
    )


def words(checkout: Path, script: str) -> list[str]:
    """The command of a script that has provision.sh's functions."""
    prelude = f"""
        . {checkout}/provision.sh
        STATE={checkout}/state LOG={checkout}/log LOCK={checkout}/lock PYTHON={sys.executable}
        OVS_LOG={checkout}
        mkdir -p "$STATE"; : >>"$LOG"
    """
    return ["bash", "-c", prelude + script]


def environment(checkout: Path) -> dict[str, str]:
    """Variables by which a script finds the fake commands first."""
    return {"PATH": f"{checkout}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.mark.needs("root")
def test_what_the_owner_runs_bears_the_owners_names(checkout: Path) -> None:
    """By root's, pytest made a folder in /tmp that root then refused."""
    nobody = pwd.getpwnam("nobody")
    script = "as_owner sh -c 'echo \"$(id -u) $USER $LOGNAME $HOME\"'"
    told = with_provision(checkout, f"OWNER={nobody.pw_uid}; {script}")
    assert told.stdout == f"{nobody.pw_uid} nobody nobody {nobody.pw_dir}\n"
    told = with_provision(checkout, f"OWNER=64321; {script}")
    assert told.stdout == "64321 64321 64321 /nonexistent\n"


@pytest.mark.needs("root")
def test_what_the_owner_runs_has_no_terminal_and_ends_by_ctrl_c(
    checkout: Path,
) -> None:
    """By root's terminal it could type commands into root's shell."""
    script = """
        OWNER=64321
        opens='if (exec </dev/tty) 2>&-; then echo opened; else echo none; fi'
        sh -c "$opens"
        as_owner sh -c "$opens; echo asleep; exec sleep 50"
        echo "runs on"
    """
    keyboard, terminal = os.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *words(checkout, script)],
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(checkout),
    ) as process:
        os.close(terminal)
        assert process.stdout is not None
        shown = [process.stdout.readline().strip() for _ in range(3)]
        os.write(keyboard, b"\x03")
        rest = process.stdout.read()
    os.close(keyboard)
    assert shown == ["opened", "none", "asleep"]
    assert (rest, process.returncode) == ("", -signal.SIGINT)


BESIDE = """
    cd {checkout}
    meet() {{
        touch "$1"
        until [ -e sources ] && [ -e plain ] && [ -e spaces ] && [ -e live ]; do sleep 0.05; done
        echo "$1"
        return "$2"
    }}
    check_sources() {{ check "sources" meet sources {sources}; }}
    check_without_root() {{ check "plain ones" meet plain {plain}; }}
    check_in_namespaces() {{ check "in namespaces" meet spaces {spaces}; }}
    check_on_switch() {{ check "live ones" meet live {live}; }}
    check_side_by_side "not long"
    exit "$FAILED"
"""


@pytest.mark.parametrize(
    "failing", [None, "sources", "plain", "spaces", "live"]
)
def test_all_sides_wait_for_each_other_and_each_decides(
    checkout: Path, failing: str | None
) -> None:
    sides = ("sources", "plain", "spaces", "live")
    codes = {side: int(side == failing) for side in sides}
    script = BESIDE.format(checkout=checkout, **codes)
    told = with_provision(checkout, script)
    assert told.returncode == int(failing is not None), told.stderr
    # The live tests' output as it comes, then the others'.
    shown = ["live"]
    for what, side in (
        ("in namespaces", "spaces"),
        ("sources", "sources"),
        ("plain ones", "plain"),
    ):
        shown += [f"provision: {what}", side]
        shown += [f"provision: failed: {what}"] * codes[side]
    assert told.stdout.splitlines() == shown
    assert ("provision: failed: live ones\n" in told.stderr) == (
        failing == "live"
    )


def test_the_last_lines_name_what_failed(checkout: Path) -> None:
    script = f"""
        cd {checkout}
        SHOWN=shown
        finish_with_doctor() {{ echo "the verdict"; exit "$1"; }}
        many() {{ seq 500; echo "FAILED tests/unit/a.py::test_b - late"; return 1; }}
        check "formatting" true
        check "many tests" many
        (check "few tests" false)
        finish_checks
    """
    told = with_provision(checkout, script)
    assert told.returncode == 1
    assert told.stdout.endswith("the verdict\n")
    assert told.stderr.splitlines()[-4:] == [
        "provision: what failed (its output is above):",
        "FAILED tests/unit/a.py::test_b - late",
        "provision: failed: many tests",
        "provision: failed: few tests",
    ]


def test_interrupted_beside_the_live_tests_nothing_runs_on(
    checkout: Path,
) -> None:
    script = f"""
        cd {checkout}
        check_sources() {{ :; }}
        check_without_root() {{ sh -c 'echo $$ >plain; exec sleep 1001'; }}
        check_in_namespaces() {{ sh -c 'echo $$ >spaces; exec sleep 1001'; }}
        check_on_switch() {{
            until [ -s plain ] && [ -s spaces ]; do sleep 0.05; done
            kill -INT $$
            sleep 1
        }}
        check_side_by_side "not long"
    """
    told = with_provision(checkout, script)
    assert told.returncode == 130, told.stderr
    deadline_s = time.monotonic() + 60
    for name in ("plain", "spaces"):
        sleeping = int((checkout / name).read_text())
        while lives(sleeping):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_a_failed_step_is_told_in_words_and_with_its_log(
    checkout: Path,
) -> None:
    command(checkout, "start", "echo it does not start; exit 7")
    (checkout / "ovs-vswitchd.log").touch()
    told = with_provision(
        checkout, 'quietly switch "starting it" logged_by_ovs start'
    )
    assert told.returncode == 3
    assert told.stderr.splitlines()[:4] == [
        "provision: starting it",
        f"provision: this failed; the end of its output (all of it: {checkout}/log):",
        "    | it does not start",
        "provision: could not finish (exit code 1): starting it",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_failed_step_ends_with_its_name_its_last_lines_and_a_hint(
    step: str, checkout: Path
) -> None:
    (checkout / "fails.sh").write_text("seq 1 40; exit 7\n")
    told = with_provision(
        checkout,
        f"quietly {step} 'doing it' bash {checkout}/fails.sh; echo continued",
    )
    assert told.returncode == 3
    assert told.stdout == ""
    *_, what, hint = told.stderr.splitlines()
    assert what == "provision: could not finish (exit code 7): doing it"
    assert hint.startswith("provision: what to do: ")
    assert STEPS[step] in hint
    assert hint.endswith("; then call this again")
    tail = "".join(f"    | {line}\n" for line in range(16, 41))
    assert f"\n{tail}" in told.stderr
    assert "    | 15\n" not in told.stderr


def test_an_earlier_failures_output_is_not_shown(checkout: Path) -> None:
    (checkout / "log").write_text("an earlier failure\n")
    told = with_provision(checkout, "quietly packages x false")
    assert told.returncode == 3
    assert "an earlier failure" not in told.stderr


def test_a_kernel_without_the_module_is_told_by_modprobes_words(
    checkout: Path,
) -> None:
    command(checkout, "modprobe", "echo FATAL: no such module >&2; exit 1")
    told = with_provision(checkout, "module_fault")
    assert (
        told.stdout == "openvswitch does not load: FATAL: no such module\n"
    )


def test_pip_is_asked_with_the_locks_hashes(checkout: Path) -> None:
    command(
        checkout,
        "../.venv/bin/python",
        'case "$*" in *mininet*) exit 0;; esac\nexit 1',
    )
    told = with_provision(
        checkout, 'set_stamp .python "$(stamp)"; install_python'
    )
    assert told.returncode == 3
    assert "pip --require-hashes -r" in (checkout / "log").read_text()


def test_what_open_vswitch_logs_meanwhile_is_part_of_the_output(
    checkout: Path,
) -> None:
    logs = checkout / "ovs-vswitchd.log"
    logs.write_text(
        "2020-01-01T00:00:00.000Z|1|lockfile|WARN|already locked by pid 1\n"
    )
    command(
        checkout,
        "start",
        f"echo $(date -u +%FT%T.999Z) new >>{logs}; exit 1",
    )
    told = with_provision(
        checkout, f"OVS_LOG={checkout}; logged_by_ovs start || echo failed"
    )
    assert "new" in told.stdout
    assert "already locked" not in told.stdout
    assert told.stdout.endswith("failed\n")


# --------------------------------------------------------------------- packages that install added

DPKG = """\
[ "$*" = "-W -f \\${db:Status-Status} \\${Package}\\\\n" ] && exec cat $HERE/packages.txt
grep -q "^installed $4$" $HERE/packages.txt && echo installed"""


def with_packages(
    checkout: Path, then: str
) -> subprocess.CompletedProcess[str]:
    """With a ``dpkg-query`` that knows ``packages.txt``, and an ``apt-get`` that is ``apt``."""
    command(checkout, "dpkg-query", DPKG.replace("$HERE", str(checkout)))
    command(checkout, "apt-get", f". {checkout}/apt")
    return with_provision(checkout, then)


def test_packages_of_a_failed_installation_are_removed_by_uninstall(
    checkout: Path,
) -> None:
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
    done = with_packages(
        checkout, "install_packages tcc && remove_packages"
    )
    assert done.returncode == 0, done.stderr
    assert (checkout / "removed").read_text().split("remove ")[
        1
    ] == "libtcc tcc\n"
    assert not (checkout / "state/before").exists()


def test_packages_of_a_killed_installation_are_known(
    checkout: Path,
) -> None:
    (checkout / "packages.txt").write_text(
        "installed base\ninstalled tcc\n"
    )
    (checkout / "apt").write_text("exit 0\n")
    done = with_packages(
        checkout, 'echo base >"$STATE/before"; install_packages mininet'
    )
    assert done.returncode == 0, done.stderr
    assert (checkout / "state/packages").read_text() == "tcc\n"


def test_what_uninstall_cannot_simulate_is_explained(
    checkout: Path,
) -> None:
    (checkout / "packages.txt").write_text("installed tcc\n")
    (checkout / "apt").write_text(
        "echo 'E: Unmet dependencies. Try it'; exit 100\n"
    )
    told = with_packages(
        checkout, 'echo tcc >"$STATE/packages"; remove_packages'
    )
    assert told.returncode == 3
    assert "    | E: Unmet dependencies. Try it" in told.stderr
    assert "sudo apt-get --fix-broken install" in told.stderr


@pytest.mark.parametrize("broken", ["ovs-vsctl", "ovs-ctl"])
def test_uninstall_continues_where_open_vswitch_does_not(
    broken: str, checkout: Path
) -> None:
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
    assert told.stderr.endswith(
        "provision: uninstalled; run folders (runs/) are left alone\n"
    )
    assert not (checkout / "state").exists()
    assert not (checkout / ".venv").exists()


# ----------------------------------------------------------------------- files that it cannot write

WRITES = {
    "tee": ("set_stamp .run x; echo continued", "writing to "),
    "mkdir": ("open_log; echo continued", "making the folder "),
    "touch": ("open_log; echo continued", "opening the lock "),
    "chmod": (
        "COMMAND=$STATE/testbed; install_command; echo continued",
        "putting testbed on ",
    ),
    "mv": (
        "dpkg-query() { :; }; install_packages tcc; echo continued",
        "listing the Debian ",
    ),
}
STATES = ("No space left on device", "Read-only file system")


@pytest.mark.parametrize("error", STATES)
@pytest.mark.parametrize("name", WRITES)
def test_a_target_that_cannot_be_written_is_told(
    name: str, error: str, checkout: Path
) -> None:
    script, what = WRITES[name]
    command(
        checkout,
        f"../broken/{name}",
        f"echo '{name}: x: {error}' >&2; exit 1",
    )
    told = with_provision(
        checkout, f"PATH={checkout}/broken:$PATH; {script}"
    )
    assert told.returncode == 3
    assert told.stdout == ""
    assert f"    | {name}: x: {error}\n" in told.stderr
    assert f"could not finish (exit code 1): {what}" in told.stderr
    assert "what to do: check " in told.stderr
    assert not (checkout / "state/testbed.new").exists()


def test_a_log_on_a_full_device_is_told(checkout: Path) -> None:
    told = with_provision(
        checkout, "LOG=/dev/full; quietly python x true; echo continued"
    )
    assert (told.returncode, told.stdout) == (3, "")
    assert (
        "could not finish (exit code 1): writing to /dev/full"
        in told.stderr
    )
    assert "df -h" in told.stderr


def test_the_lock_lies_where_only_its_owner_can_put_it(
    checkout: Path,
) -> None:
    """Anybody may make a link of its name in /run/lock, and hold it."""
    above = checkout / "var"
    above.mkdir(mode=0o755)
    state = above / "provision"
    told = with_provision(
        checkout,
        f"STATE={state}; LOCK=$STATE/lock; open_log; echo continued",
    )
    assert (told.returncode, told.stdout, told.stderr) == (
        0,
        "continued\n",
        "",
    )
    assert (state / "lock").exists()
    # A folder of an earlier version was open to all.
    assert stat.S_IMODE(above.stat().st_mode) == 0o700
    text = (ROOT / "provision.sh").read_text("utf-8")
    assert "LOCK=$STATE/lock " in text


# ------------------------------------------------------------------------------ the checkout's path


@pytest.mark.parametrize(
    "name", ["it's", "a b", "$(touch injected)", "'; touch injected; '"]
)
def test_a_checkout_of_any_name_is_called(
    name: str, checkout: Path
) -> None:
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
    command_told = told.stderr.splitlines()[-1].removeprefix(
        "provision: what to do: "
    )
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


def on_release(
    checkout: Path, text: str | None, then: str
) -> subprocess.CompletedProcess[str]:
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
        checkout,
        OTHERS[name],
        f"need_root() {{ echo continued; exit 0; }}; main {verb}",
    )
    assert told.returncode == 3
    assert told.stdout == ""
    refusal, remedy = told.stderr.splitlines()
    assert (
        "installs on Debian 12 and 13; this is "
        + OTHERS[name].split('"')[-2]
        in refusal
    )
    assert "vagrant up" in remedy
    assert f"pip install {checkout}" in remedy


def test_a_machine_without_a_release_is_refused_by_its_kernels_name(
    checkout: Path,
) -> None:
    told = on_release(checkout, None, "check_release")
    assert told.returncode == 3
    assert "this is Linux" in told.stderr


def test_another_release_is_accepted_where_asked(checkout: Path) -> None:
    then = "HOSENET_ANY_RELEASE=1; check_release; echo continued"
    told = on_release(checkout, OTHERS["Fedora"], then)
    assert told.stdout == "continued\n"
    assert "Fedora Linux 42 is unknown; continuing" in told.stderr


@pytest.mark.parametrize("verb", ["help", "doctor"])
def test_help_and_doctor_ask_for_no_release(
    verb: str, checkout: Path
) -> None:
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
def test_a_release_without_a_name_is_told_by_its_id(
    text: str, said: str, checkout: Path
) -> None:
    assert said in on_release(checkout, text, "check_release").stderr


REINSTALLED = "sudo apt-get install --reinstall python3-minimal python3"


@pytest.mark.parametrize("name", [*RELEASES, "Debian 11", "Fedora"])
def test_another_python_is_told_with_what_its_release_can_do(
    name: str, checkout: Path
) -> None:
    command(
        checkout, "python3", '[ "$1" = --version ] && echo Python 3.14.0'
    )
    text = RELEASES[name][0] if name in RELEASES else OTHERS[name]
    told = on_release(
        checkout, text, f"PYTHON={checkout}/bin/python3; check_python"
    )
    assert told.returncode == 3
    assert (REINSTALLED in told.stderr) is (name in RELEASES)
    assert ("vagrant up" in told.stderr) is (name not in RELEASES)


def test_the_page_has_the_same_remedy_for_another_python() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    row = next(
        line
        for line in page.splitlines()
        if "and the locks are for Python" in line
    )
    assert f"`{REINSTALLED}`" in row


@pytest.mark.parametrize(
    ("minor", "accepted"),
    [
        (9, False),
        (10, False),
        (11, True),
        (12, True),
        (13, True),
        (14, False),
    ],
)
def test_pythons_of_the_locks_are_accepted(
    minor: int, accepted: bool, checkout: Path
) -> None:
    fake = f"import sys; sys.version_info = (3, {minor}, 2); "
    number = f"3.{minor}"
    command(
        checkout,
        "python3",
        f'[ "$1" != --version ] || {{ echo Python {number}.2; exit; }}\n'
        f'exec {sys.executable} -c "{fake}$2"',
    )
    told = with_provision(
        checkout,
        f"PYTHON={checkout}/bin/python3; check_python; echo continued",
    )
    assert (told.stdout == "continued\n") is accepted
    if not accepted:
        assert told.returncode == 3
        assert (
            f"is Python {number}.2, and the locks are for Python 3.11, 3.12 and 3.13"
            in told.stderr
        )


def test_too_little_space_is_told_before_the_first_change(
    checkout: Path,
) -> None:
    told = with_provision(
        checkout,
        f"need_space {checkout}/not/there 999999999 /usr 1; echo continued",
    )
    assert told.returncode == 3
    assert told.stdout == ""
    assert "and the installation needs " in told.stderr


def test_space_that_is_there_is_no_matter(checkout: Path) -> None:
    told = with_provision(
        checkout,
        f"need_space {checkout} 0 /usr 0; need_space; echo continued",
    )
    assert (told.returncode, told.stdout, told.stderr) == (
        0,
        "continued\n",
        "",
    )


def test_paths_of_one_file_system_need_their_sum(checkout: Path) -> None:
    command(
        checkout,
        "df",
        'case "$*" in *target*) echo T; echo /;; *) echo A; echo 3072000;; esac',
    )
    both = with_provision(checkout, f"need_space {checkout} 2000 /usr 2000")
    one = with_provision(checkout, f"need_space {checkout} 2000")
    assert (both.returncode, one.returncode) == (3, 0)
    assert (
        "/ has 3000 MiB left, and the installation needs 4000 MiB there"
        in both.stderr
    )


@pytest.mark.parametrize(
    "known", ["echo A; echo -", "exit 1", "echo A; echo"]
)
def test_space_that_df_does_not_know_is_no_matter(
    known: str, checkout: Path
) -> None:
    command(
        checkout,
        "df",
        f'case "$*" in *target*) echo T; echo /;; *) {known};; esac',
    )
    told = with_provision(
        checkout, f"need_space {checkout} 2000; echo continued"
    )
    assert (told.returncode, told.stdout, told.stderr) == (
        0,
        "continued\n",
        "",
    )


def test_a_mount_point_that_df_does_not_know_hides_no_lack(
    checkout: Path,
) -> None:
    command(
        checkout,
        "df",
        'case "$*" in *target*) echo T; echo -;; *) echo A; echo 3072;; esac',
    )
    told = with_provision(checkout, f"need_space {checkout}/not/there 2000")
    assert told.returncode == 3
    assert (
        f"{checkout} has 3 MiB left, and the installation needs 2000 MiB there"
        in told.stderr
    )


def test_no_archives_or_indexs_host_is_named() -> None:
    hosts = r"[a-z]\.debian\.org|pypi\.org|python[h]osted|npm[j]s"
    assert not re.findall(hosts, (ROOT / "provision.sh").read_text())


def test_no_remedy_needs_what_is_not_installed_yet() -> None:
    """Locks are made with `uv`, a test tool, and are the same for every Python."""
    assert "make lock" not in (ROOT / "provision.sh").read_text()
    assert (
        "make lock"
        not in (ROOT / "docs" / "troubleshooting.md").read_text()
    )
