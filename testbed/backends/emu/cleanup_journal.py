"""The cleanup journal: a record of all that a run makes on this machine.

Each run has a file below the state folder, with a JSON object per line. An
entry is on disk before the thing that it names exists. So after SIGKILL or a
reboot ``testbed clean`` removes what journals name, and nothing else
(:mod:`testbed.backends.emu.cleanup`). A journal that names mostly removed
things is rewritten. The state folder also holds the lock that allows one
testbed per machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from testbed.errors import IN_USE, MachineCannot, RunFailed

STATE_VARIABLE = "HOSENET_STATE_DIR"
DEFAULT_STATE = Path("/var/lib/hosenet")
RUN_NAME = re.compile("[0-9a-f]{8}")
COMPACT_AFTER = 500
"""Least number of removals after which a journal is rewritten. There must also
be more removals than entries that remain.
"""


def state_dir() -> Path:
    """The state folder, created if missing; readable by root alone.

    Raises MachineCannot if it cannot be made, or this user cannot write to it.
    """
    folder = Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise MachineCannot(
        f"the state folder {folder} is not ours to write",
        f"run the command with sudo, or name another folder by {STATE_VARIABLE}",
    )


Kind = Literal[
    "netns",
    "veth",
    "bridge",
    "cgroup",
    "process",
    "file",
    "sysctl",
    "daemon",
    "part",
]


@dataclass(frozen=True)
class JournalEntry:
    """A thing that a run makes. Fields after ``name`` belong to some kinds.

    - ``netns``: a network namespace; ``inode`` distinguishes it from a later
      one of the same name.
    - ``veth``: an end in the host's namespace, in the run's device group.
    - ``bridge``: its ``external_ids:hosenet-run`` is the run.
    - ``cgroup``: a folder and all below it.
    - ``process``: by number and start (clock ticks since boot), since numbers
      are reused.
    - ``file``: one outside the run folder.
    - ``sysctl``: a kernel setting. The cleanup writes ``old`` if the value is
      still ``new``.
    - ``daemon``: Open vSwitch, if the run has started it. The cleanup stops it
      when no bridge is left.
    - ``part``: the folder of a part of the switch, or of the controller's
      state. A part's daemons are found by it, as their command lines name it.
    """

    kind: Kind
    name: str
    inode: int = 0
    pid: int = 0
    start_ticks: int = 0
    old: str = ""
    new: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


@dataclass(frozen=True)
class OwnershipTag:
    """The owner of a journal: a run, with the boot and time of its start.

    ``run``: its random name, 8 hexadecimal digits; ``name``: the one for
    people.
    """

    run: str
    name: str
    boot_id: str
    started_unix_s: float

    @property
    def group(self) -> int:
        """The device group of the run's veths: a number unique to the run."""
        return 0x4000_0000 | int(self.run, 16)


def boot_id() -> str:
    """The kernel's random identifier of this boot."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None without a process."""
    path = Path(f"/proc/{pid}/stat")
    try:
        stat = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Field 22 of proc(5). Fields are counted from the last parenthesis: the
    # command's name, field 2, may itself hold blanks and parentheses.
    return int(stat.rpartition(")")[2].split()[19])


class CleanupJournal:
    """An open journal. Not for use by several threads at once."""

    def __init__(
        self,
        path: Path,
        tag: OwnershipTag,
        entries: Iterable[JournalEntry] = (),
    ) -> None:
        self.path = path
        self.tag = tag
        self.damage = ""
        self._entries = {entry.key: entry for entry in entries}
        self._n_gone = 0

    @classmethod
    def create(cls, name: str, state: Path | None = None) -> CleanupJournal:
        """A new journal for a run called ``name`` by people."""
        # 30 bits: OwnershipTag.group sets the one above them.
        run = f"{secrets.randbits(30):08x}"
        tag = OwnershipTag(
            run=run,
            name=name,
            boot_id=boot_id(),
            started_unix_s=time.time(),
        )
        folder = (state or state_dir()) / "runs"
        folder.mkdir(mode=0o700, exist_ok=True)
        journal = cls(folder / f"{tag.run}.jsonl", tag)
        journal._append([{"kind": "run", **asdict(tag)}])
        _sync_folder(folder)
        return journal

    @classmethod
    def read(cls, path: Path) -> CleanupJournal:
        """Reads a journal from disk. Raises RunFailed where it names no run.

        The result's ``damage`` names the first line that is not of a journal;
        it is empty for a sound one.
        """
        tag: OwnershipTag | None = None
        entries: dict[tuple[str, str], JournalEntry] = {}
        damage = ""
        for number, line in enumerate(_lines(path), 1):
            try:
                record = json.loads(line)
                content = _content(line, record)
            except json.JSONDecodeError:
                # A crash cut the line short. The things that it was to name
                # were not made: the line comes first.
                continue
            except (
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
                RecursionError,
            ):
                damage = damage or f"line {number} is not of a journal"
                continue
            # Also after a damaged line: this one still names things to remove.
            if isinstance(content, OwnershipTag):
                tag = content
            elif isinstance(content, JournalEntry):
                entries[content.key] = content
            else:
                for key in content:
                    entries.pop(key, None)
        if tag is None:
            why = damage or "its first line does not name a run"
            raise RunFailed(f"{path} is not a cleanup journal: {why}")
        journal = cls(path, tag, entries.values())
        journal.damage = damage
        return journal

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Things recorded and not removed since, in the order of recording."""
        return tuple(self._entries.values())

    def add(self, entries: Sequence[JournalEntry]) -> None:
        """Records things that are about to be made; on disk when this returns."""
        records = []
        for entry in entries:
            fields = vars(entry).items()
            records.append({name: value for name, value in fields if value})
        # One write for all of them, and one fsync: 5 ms for a thousand.
        self._append(records)
        for entry in entries:
            self._entries[entry.key] = entry

    def remove(self, entries: Sequence[JournalEntry]) -> None:
        """Records that things have been removed.

        A full disk keeps them on record. That is harmless: who removes them
        again finds nothing.
        """
        if not entries:
            return
        keys = [entry.key for entry in entries]
        with suppress(OSError):
            self._append([{"kind": "gone", "names": keys}])
        for entry in entries:
            self._entries.pop(entry.key, None)
        self._n_gone += len(entries)
        if self._n_gone > max(COMPACT_AFTER, len(self._entries)):
            self._compact()

    def _compact(self) -> None:
        """Replaces the journal's file by one that names only what remains.

        A crash leaves the old file or the new one, a full disk the old one.
        """
        with suppress(OSError):
            self.write_fresh().replace(self.path)
            _sync_folder(self.path.parent)
        self._n_gone = 0

    @property
    def _fresh_path(self) -> Path:
        """Path of a rewritten journal; its suffix hides it from readers."""
        return self.path.with_suffix(".new")

    def write_fresh(self) -> Path:
        """Writes a file that names only what remains, beside the journal's.

        Returns its path. Raises OSError.
        """
        fresh = CleanupJournal(self._fresh_path, self.tag)
        fresh.path.unlink(missing_ok=True)
        fresh._append([{"kind": "run", **asdict(self.tag)}])
        fresh.add(self.entries)
        return fresh.path

    def delete(self) -> None:
        """Deletes the journal itself, when nothing it names is left."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self._fresh_path.unlink(missing_ok=True)
        _sync_folder(self.path.parent)

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        if not records:
            return
        lines = [f"{json.dumps(record)}\n" for record in records]
        data = "".join(lines).encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            # A line that a crash left half written must not run into the next.
            if os.fstat(descriptor).st_size and not _ends_a_line(self.path):
                data = b"\n" + data
            view = memoryview(data)
            # A write may be partial, as on a disk that fills up.
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _sync_folder(folder: Path) -> None:
    # fsync of a file does not write its name, which is its folder's data.
    descriptor = os.open(
        folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    )
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        why = error.strerror or str(error)
        raise RunFailed(f"{path} is not a cleanup journal: {why}") from None


def _content(
    line: str, record: dict[str, Any]
) -> OwnershipTag | JournalEntry | list[tuple[str, str]]:
    """The tag or entry of a line, or the keys of removed entries.

    ``record``: the line's JSON value. Raises ValueError, TypeError, KeyError or
    AttributeError for a line that is not of a journal.
    """
    if record.get("kind") == "run":
        tag = TypeAdapter(OwnershipTag).validate_json(line, strict=True)
        if not RUN_NAME.fullmatch(tag.run):
            raise ValueError(tag.run)
        return tag
    if record.get("kind") != "gone":
        return TypeAdapter(JournalEntry).validate_json(line, strict=True)
    names = []
    for kind, name in record["names"]:
        names.append((str(kind), str(name)))
    return names


def journals(
    state: Path | None = None, *, damaged: bool = False
) -> list[CleanupJournal]:
    """All journals on disk, oldest first.

    Raises RunFailed for a damaged one. With ``damaged`` the result holds its
    readable entries.
    """
    on_disk = []
    for path in journal_paths(state):
        # The run was killed while it wrote the first line: it made nothing.
        if path.is_file() and b"\n" not in path.read_bytes():
            path.unlink()
            continue
        try:
            journal = CleanupJournal.read(path)
        except RunFailed:
            if damaged:
                continue
            raise
        if journal.damage and not damaged:
            raise RunFailed(f"{path} is damaged: {journal.damage}")
        on_disk.append(journal)
    return sorted(on_disk, key=lambda journal: journal.tag.started_unix_s)


def journal_paths(state: Path | None = None) -> list[Path]:
    """Files of journals, damaged ones too."""
    return sorted(((state or state_dir()) / "runs").glob("*.jsonl"))


def set_damaged_aside(
    state: Path | None = None, *, dry_run: bool = False
) -> list[tuple[Path, Path]]:
    """Renames damaged journals, and writes new ones of their readable entries.

    Returns the old and the new path of each; a dry run changes nothing.
    """
    moved = []
    for path in journal_paths(state):
        journal = None
        with suppress(RunFailed):
            journal = CleanupJournal.read(path)
            if not journal.damage:
                continue
        if path.is_file() and b"\n" not in path.read_bytes():
            continue
        aside = path.with_suffix(f".damaged-{time.time_ns()}")
        moved.append((path, aside))
        if dry_run:
            continue
        if journal is None:
            path.rename(aside)
        else:
            fresh = journal.write_fresh()
            # Under two names for a moment: a crash or a full disk leaves the
            # damaged journal or the new one in place.
            aside.hardlink_to(path)
            fresh.replace(path)
    return moved


# ------------------------------------------------------------------------------- machine lock


GRACE_S = 3.0
"""Time for the lock's holder to write its name, or for a dead one's lock to
end.
"""


@contextmanager
def machine_lock(name: str, state: Path | None = None) -> Iterator[None]:
    """Holds the right to change this machine's network for the block.

    ``name``: the holder's, for people.

    Raises MachineCannot, naming the holder, if another testbed runs here.
    """
    path = (state or state_dir()) / "lock"
    # Close-on-exec: a child that outlives the run must not keep the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        _lock(descriptor, path)
        file.truncate(0)
        record = {
            "name": name,
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
        }
        file.write(json.dumps(record).encode())
        try:
            yield
        finally:
            # A process that the next holder keeps out must not read this
            # holder's name.
            file.truncate(0)


def _lock(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + GRACE_S
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        holder = _holder(path)
        if holder is not None or time.monotonic() > deadline:
            hint = (
                "wait until it is done, or end it: a run with Ctrl-C,"
                " a network that stays up with sudo testbed down"
            )
            message = f"{IN_USE}{holder or 'one without a name'}"
            raise MachineCannot(message, hint)
        time.sleep(0.01)


def _holder(path: Path) -> str | None:
    """Name and number of the live process that holds the lock.

    None if it has not written them yet, or has died. Its lock may outlive it: a
    child that it was forking has the lock's descriptor until it executes its
    program.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if start_ticks(record["pid"]) != record["start_ticks"]:
            return None
        return f"{record['name']!r} (process {record['pid']})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


# ----------------------------------------------------------------------- temporary settings


RCU_EXPEDITED = Path("/sys/kernel/rcu_expedited")


@contextmanager
def setting(
    path: Path,
    new: str,
    journal: CleanupJournal,
) -> Iterator[None]:
    """Writes ``new`` for the block and the old value after it.

    A value that somebody else has written meanwhile stays. Nothing happens
    where the file does not exist.
    """
    old = new
    if path.exists():
        old = path.read_text(encoding="ascii").strip()
    if old == new:
        yield
        return
    entry = JournalEntry("sysctl", str(path), old=old, new=new)
    journal.add([entry])
    try:
        path.write_text(new, encoding="ascii")
        yield
    finally:
        # In this order: after a crash between the two the cleanup sees that
        # the old value is back, and leaves it.
        if is_changed(entry):
            path.write_text(old, encoding="ascii")
        journal.remove([entry])


def is_changed(entry: JournalEntry) -> bool:
    """True while a kernel setting has the value that the run gave it.

    Somebody else may have changed it since. Raises OSError.
    """
    # The kernel separates a setting's numbers by tabs: compared by word.
    current = Path(entry.name).read_text(encoding="ascii").split()
    return current == entry.new.split() and current != entry.old.split()


@contextmanager
def expedited_rcu(journal: CleanupJournal) -> Iterator[None]:
    """Expedites the kernel's RCU grace periods for the block.

    The switch opens and closes a packet socket for every port, one after the
    other, and each close waits for a grace period: some 15 ms, or 2 ms
    expedited.
    """
    with ExitStack() as stack:
        # A container's /sys may be read-only, and the journal's disk full.
        # Without the setting everything only takes longer.
        if os.access(RCU_EXPEDITED, os.W_OK):
            with suppress(OSError):
                stack.enter_context(setting(RCU_EXPEDITED, "1", journal))
        yield
