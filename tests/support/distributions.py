"""Wheel and source distribution of a checkout, the same bytes wherever they are built.

    python -m tests.support.distributions [FOLDER]    build both twice, compare, keep one (dist/)

The first build has the machine's own settings, the second another folder, umask, time zone,
language and hash seed, and sources with other modes and times. Bytes depend on the tracked files,
on the last commit's time (or SOURCE_DATE_EPOCH) and on the build tools of requirements/*.txt.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
OTHER_SETTINGS = {
    "TZ": "Pacific/Auckland",
    "LC_ALL": "C",
    "PYTHONHASHSEED": "7",
}


def tracked(root: Path = ROOT) -> list[str]:
    """Tracked files that are there; all files of a folder that git does not know."""
    if not (root / ".git").exists():
        files = (
            path
            for path in root.rglob("*")
            if path.is_symlink() or path.is_file()
        )
        return sorted(str(path.relative_to(root)) for path in files)
    listed = _output(["git", "ls-files", "-z"], root).split("\0")
    return sorted(
        name for name in listed if name and (root / name).is_file()
    )


def commit_time(root: Path = ROOT) -> str:
    """SOURCE_DATE_EPOCH: seconds, of the environment or of the last commit."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return (
        epoch or _output(["git", "log", "-1", "--format=%ct"], root).strip()
    )


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout


def copy_tracked(root: Path, to: Path, *, private: bool = False) -> None:
    """Copies the tracked files with modes 644 and 755; ``private``: 600 and 700."""
    for name in tracked(root):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target, follow_symlinks=False)
        if not target.is_symlink():
            mode = 0o755 if os.access(root / name, os.X_OK) else 0o644
            target.chmod(mode & (0o700 if private else 0o777))


def build(root: Path, to: Path) -> list[Path]:
    """Builds both into a new folder: the wheel, then the source distribution."""
    epoch = commit_time(root)
    settings = os.environ | {
        "SOURCE_DATE_EPOCH": epoch,
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    with tempfile.TemporaryDirectory() as folder:
        copy_tracked(root, source := Path(folder) / "hosenet")
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(to.resolve()),
        ]
        done = subprocess.run(
            command, cwd=source, env=settings, umask=0o022, check=False, timeout=TIMEOUT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nthe build failed")
    [wheel], [archive] = to.glob("*.whl"), to.glob("*.tar.gz")
    normalise(archive, int(epoch))
    return [wheel, archive]


def normalise(archive: Path, epoch: int) -> None:
    """Rewrites a source distribution in order of names, without owners and times of its build."""
    whole = archive.with_suffix(".new")
    with (
        tarfile.open(archive) as old,
        whole.open("wb") as file,
        # gzip's header has the file's name and the time: no name, and the
        # commit's time.
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(
            fileobj=packed, mode="w", format=tarfile.PAX_FORMAT
        ) as new,
    ):
        for member in sorted(
            old.getmembers(), key=lambda member: member.name
        ):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.mode = (
                0o755 if member.isdir() or member.mode & 0o100 else 0o644
            )
            # tarfile writes what an old pax header says in place of the
            # values above.
            member.pax_headers = {}
            new.addfile(
                member, old.extractfile(member) if member.isreg() else None
            )
    whole.replace(archive)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the distributions in a folder."""
    built = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(built)
    }


def build_elsewhere(root: Path, to: Path) -> None:
    """Builds in a process with other settings, from a copy with other modes and times."""
    with tempfile.TemporaryDirectory(
        prefix="quite another place "
    ) as folder:
        copy_tracked(
            root, copy := Path(folder) / "a" / "checkout", private=True
        )
        settings = OTHER_SETTINGS | {
            "SOURCE_DATE_EPOCH": commit_time(root),
            "TMPDIR": folder,
        }
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            str(to.resolve()),
            "--once",
            str(copy),
        ]
        subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | settings,
            umask=0o077,
            check=True,
            timeout=TIMEOUT_S,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.distributions"
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "dist"
    )
    parser.add_argument(
        "--once",
        metavar="SOURCE",
        type=Path,
        help="build another folder, once",
    )
    options = parser.parse_args()
    if options.once:
        build(options.once, options.folder)
        return 0
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
    ):
        built = build(ROOT, Path(first))
        build_elsewhere(ROOT, Path(second))
        first_digests, second_digests = (
            digests(Path(first)),
            digests(Path(second)),
        )
        for name, digest in first_digests.items():
            print(
                f"{digest}  {name}{'' if second_digests.get(name) == digest else '  DIFFERS'}"
            )
        if first_digests != second_digests:
            return 1
        options.folder.mkdir(exist_ok=True)
        for path in built:
            shutil.copy(path, options.folder)
    print(f"both were built twice, the same to the byte: {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
