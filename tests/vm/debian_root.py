"""Debian roots with this checkout installed, shared by tests/vm/run and tests/vm/chroot.

Each release's roots are kept in the cache: a minimal one (``base-…``), and one with the last commit
in it (``root-…``), installed by its own ``provision.sh``, tests' tools too. The checkout lies where
the Vagrantfile puts it and belongs to a user as a Vagrant box has one.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
CACHE = Path("/var/tmp/hosenet-vm")  # noqa: S108 - a cache that outlives a boot
RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
HOST_PACKAGES = {
    "debootstrap": "debootstrap",
    "git": "git",
}
# What makes the root bootable and a box of Vagrant's; everything else is provision.sh's business.
ROOT_PACKAGES = (
    "systemd-sysv",
    "udev",
    "kmod",
    "linux-image-cloud-amd64",
    "ca-certificates",
    "sudo",
)
USER = "vagrant"
HOME_MODE = "0700"  # as Debian's adduser makes homes: nobody else reads the checkout
ROOT_CHECKOUT = f"home/{USER}/hosenet"
KEPT_IN_CHECKOUT = {".venv", "hosenet.egg-info", "__pycache__"}
# Namespaces of a command's own: what it mounts and starts ends with it, however it ends.
PRIVATE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Cannot(Exception):
    """This machine cannot; the message ends in what to do."""


# ------------------------------------------------------------------------------------- phases


class Phases:
    """Says which phase is at work, how long each took, and the total."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._start_s = time.monotonic()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        print(f"{self.name}: {what} ...", flush=True)
        start_s, start_cpu_s = time.monotonic(), children_cpu_s()
        try:
            yield
        finally:
            took_s, cpu_s = (
                time.monotonic() - start_s,
                children_cpu_s() - start_cpu_s,
            )
            spent = f"{took_s:.1f} s ({cpu_s:.0f} s of processor time)"
            print(f"{self.name}: {what}: {spent}", flush=True)

    def total(self) -> str:
        return f"total {time.monotonic() - self._start_s:.1f} s"


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def logged(
    log: Path, command: Sequence[str | Path], timeout_s: float = 1800
) -> None:
    """Run a command with its output in ``log``; a failure shows the log's tail."""
    with log.open("ab") as sink:
        try:
            done = subprocess.run(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Cannot(
                f"{command[0]} had not ended after {timeout_s:.0f} s: {log}"
            ) from None
    if done.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-25:]
        print("\n".join(f"    | {line}" for line in tail), file=sys.stderr)
        raise Cannot(
            f"{command[0]} ended with {done.returncode}; all of its output: {log}"
        )


def told(*command: str | Path, timeout_s: float = 300) -> str:
    """The output of a command; raises :class:`Cannot` where it fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise Cannot(
            f"{command[0]} had not ended after {timeout_s:.0f} s"
        ) from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().rpartition("\n")[2]
        raise Cannot(
            f"{command[0]} ended with {error.returncode}: {said}"
        ) from None
    return done.stdout


# --------------------------------------------------------------------------------- this machine


def prepare_host(log: Path, packages: dict[str, str]) -> None:
    """Install what is missing of ``packages`` (package to command)."""
    if os.geteuid() != 0:
        raise Cannot(f"making a Debian root needs root: sudo {sys.argv[0]}")
    wanted = {**HOST_PACKAGES, **packages}
    missing = [
        p for p, command in wanted.items() if shutil.which(command) is None
    ]
    if not missing:
        return
    print(f"installing {' '.join(missing)}", flush=True)
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q")
    logged(log, (*apt, "update"))
    logged(
        log, (*apt, "install", "-y", "--no-install-recommends", *missing)
    )


def own_release() -> str:
    """The codename of this machine's Debian, empty if it is another system."""
    found = platform.freedesktop_os_release()
    return (
        found.get("VERSION_CODENAME", "")
        if found.get("ID") == "debian"
        else ""
    )


def own_sources() -> list[tuple[str, str, str]]:
    """Archive, suite and component of each package source here that follows the release."""
    wanted = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    own = own_release()
    if not own:
        return []
    listed = told(
        "apt-get",
        "indextargets",
        "--format",
        wanted,
        "Created-By: Packages",
    )
    rows = (line.split("|") for line in sorted(set(listed.splitlines())))
    return [
        (uri, suite, part)
        for uri, suite, part in rows
        if suite.split("-")[0] == own
    ]


# ------------------------------------------------------------------------------------- the root


def key_of(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:12]


@contextmanager
def only_one(cache: Path) -> Iterator[None]:
    """A second call waits: roots are built in place."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def base_root(release: str, cache: Path, log: Path) -> Path:
    """A minimal bootable Debian with a user, made once per release and list of packages.

    An older one of the same release is removed, as is one that was left half made.
    """
    root = (
        cache / f"base-{release}-{key_of(*ROOT_PACKAGES, USER, HOME_MODE)}"
    )
    if root.exists():
        return root
    for old in cache.glob(f"base-{release}-*"):
        shutil.rmtree(old)
    part = root.with_suffix(".part")
    options = ("--variant=minbase", f"--include={','.join(ROOT_PACKAGES)}")
    mirror = [
        uri for uri, suite, _ in own_sources() if suite == own_release()
    ][:1]
    logged(log, (*PRIVATE, "debootstrap", *options, release, part, *mirror))
    adopt_settings(part)
    adopt_package_sources(release, part, log)
    add_user(part, log)
    part.rename(root)
    return root


def adopt_settings(root: Path) -> None:
    """The root reaches the network as this machine does: names, certificates, proxies."""
    for name in (
        "etc/resolv.conf",
        "etc/pip.conf",
        "etc/ssl/certs/ca-certificates.crt",
    ):
        if (Path("/") / name).exists():
            (root / name).unlink(missing_ok=True)
            shutil.copy(Path("/") / name, root / name)
    shutil.copytree(
        "/etc/apt/apt.conf.d",
        root / "etc/apt/apt.conf.d",
        dirs_exist_ok=True,
    )


def adopt_package_sources(release: str, root: Path, log: Path) -> None:
    """This machine's package sources; those of another release as far as the archive has them."""
    apt = root / "etc/apt"
    if release == own_release():
        (apt / "sources.list").unlink(missing_ok=True)
        for name in ("sources.list.d", "keyrings", "trusted.gpg.d"):
            if (Path("/etc/apt") / name).exists():
                shutil.copytree(
                    Path("/etc/apt") / name, apt / name, dirs_exist_ok=True
                )
        if Path("/etc/apt/sources.list").exists():
            shutil.copy("/etc/apt/sources.list", apt)
        return
    for uri, suite, component in own_sources():
        moved = f"{release}{suite.removeprefix(own_release())}"
        entry = apt / "sources.list.d" / f"{moved}-{component}.list"
        line = f"deb {uri} {moved} {component}\n"
        if moved == release:
            (apt / "sources.list").write_text(line)
            continue
        entry.write_text(line)
        try:
            logged(log, (*inside(root), "apt-get", "-q", "update"))
        except Cannot:
            print(
                f"this machine's archive has no {moved}: left out",
                flush=True,
            )
            entry.unlink()


def add_user(root: Path, log: Path) -> None:
    """A user who may do everything by sudo, as Vagrant's boxes have one."""
    create = (
        "useradd",
        "--create-home",
        "-K",
        f"HOME_MODE={HOME_MODE}",
        "--shell",
        "/bin/bash",
    )
    logged(log, (*inside(root), *create, USER))
    rule = root / "etc/sudoers.d" / USER
    rule.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    rule.chmod(0o440)


def commit_of(checkout: Path, log: Path) -> Path:
    """A clean clone of the checkout's last commit, beside the log."""
    clone = log.parent / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    git = (
        "git",
        "-c",
        f"safe.directory={checkout}",
        "-c",
        f"safe.directory={checkout}/.git",
    )
    logged(
        log, (*git, "clone", "--quiet", "--no-hardlinks", checkout, clone)
    )
    changed = told(
        *git, "-C", checkout, "status", "--porcelain"
    ).splitlines()
    if changed:
        print(
            f"{len(changed)} uncommitted changes are not in it", flush=True
        )
    return clone


def provisioned_root(
    release: str, cache: Path, clone: Path, log: Path
) -> Path:
    """The base with this commit in it; an older one of the same release is removed."""
    base = base_root(release, cache, log)
    locks = [
        p.read_bytes()
        for p in sorted((clone / "requirements").glob("*.txt"))
    ]
    script = (clone / "provision.sh").read_bytes()
    root = cache / f"root-{release}-{key_of(base.name, script, *locks)}"
    if not root.exists():
        for old in cache.glob(f"root-{release}-*"):
            shutil.rmtree(old)
        part = root.with_suffix(".part")
        copy_root(base, part, log)
        lay_checkout(clone, part, log)
        provision(part, log)
        part.rename(root)
    lay_checkout(clone, root, log)
    provision(
        root, log
    )  # changes nothing where the root was just made, or only the project
    compile_checkout(root, log)
    return root


def copy_root(root: Path, copy: Path, log: Path) -> None:
    logged(log, ("cp", "--archive", "--reflink=auto", root, copy))


def lay_checkout(clone: Path, root: Path, log: Path) -> None:
    """Put the clone's files where the root's checkout is; its environment stays.

    Files that are the same stay as they are: what was compiled of them is known by their times.
    """
    target = root / ROOT_CHECKOUT
    target.mkdir(parents=True, exist_ok=True)
    _remove_others(clone, target)
    shutil.copytree(
        clone,
        target,
        symlinks=True,
        dirs_exist_ok=True,
        copy_function=_copy_if_changed,
    )
    logged(log, (*inside(root), "chown", "--recursive", "--no-dereference", f"{USER}:{USER}",
                 f"/{ROOT_CHECKOUT}"))  # fmt: skip


def _remove_others(clone: Path, target: Path) -> None:
    for entry in target.iterdir():
        if entry.name in KEPT_IN_CHECKOUT:
            continue
        wanted = clone / entry.name
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and wanted.is_dir():
            _remove_others(wanted, entry)
        elif is_folder:
            shutil.rmtree(entry)
        elif entry.is_symlink() or not wanted.exists():
            entry.unlink()


def _copy_if_changed(source: str, target: str) -> None:
    if not Path(target).is_file() or not filecmp.cmp(
        source, target, shallow=False
    ):
        shutil.copy2(source, target)


def inside(root: Path) -> tuple[str, ...]:
    """Run a command in the root, in namespaces of its own: nothing stays mounted or running."""
    environment = (
        "env",
        "HOSENET_NO_START=1",
        "PIP_NO_CACHE_DIR=1",
        "HOME=/root",
        f"PATH={PATH}",
    )
    return (
        *PRIVATE,
        f"--mount-proc={root}/proc",
        "chroot",
        str(root),
        *environment,
    )


def compile_checkout(root: Path, log: Path) -> None:
    """Compile to bytecode here, where it takes a second; the emulated machine takes a minute."""
    python = f"/{ROOT_CHECKOUT}/.venv/bin/python"
    # Solutions are read as text, folder by folder.
    skipped = ("-x", r"/(\.venv|solution)/")
    compile_all = (
        python,
        "-m",
        "compileall",
        "-q",
        *skipped,
        f"/{ROOT_CHECKOUT}",
    )
    as_user = ("setpriv", "--reuid", USER, "--regid", USER, "--init-groups")
    logged(log, (*inside(root), *as_user, *compile_all))


def provision(root: Path, log: Path) -> None:
    # Packages must not start daemons here: they would be this machine's.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        script = f"/{ROOT_CHECKOUT}/provision.sh"
        logged(log, (*inside(root), script, "install", "--with-tests"))
    finally:
        policy.unlink()
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
