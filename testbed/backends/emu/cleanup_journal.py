"""The cleanup journal: a record of all that a run makes on this machine.

Each run has a journal file below the state folder, with a JSON object per line.
An entry is on disk before the thing that it names exists. So ``testbed clean``
finds all that a run left at SIGKILL or a reboot, and removes nothing else
(:mod:`testbed.backends.emu.cleanup`). A journal is rewritten when most of the
things that it names have been removed. The state folder also holds the lock
that allows one testbed per machine.
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
"""A journal is rewritten after more removals than this, if they also outnumber
the entries that remain.
"""


def state_dir() -> Path:
    """The state folder, created if missing, for its owner alone.

    Raises MachineCannot if it cannot be made, or this user cannot write to it.
    """
    folder = Path(os.environ.get(STATE_VARIABLE) or DEFAULT_STATE)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise MachineCannot(
        f"the state folder {folder} is not ours to write",
        f"run the command with sudo, or set {STATE_VARIABLE} to another",
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
    """A thing that a run makes. Each field after ``name`` is of one kind only.

    - ``netns``: a network namespace; ``inode`` distinguishes it from a later
      one of the same name.
    - ``veth``: an end of a veth pair that is in the host's namespace and in the
      run's device group.
    - ``bridge``: a bridge whose ``external_ids:hosenet-run`` is the run.
    - ``cgroup``: a control group's folder, with all below it.
    - ``process``: ``pid`` and ``start_ticks`` (clock ticks since boot), as
      numbers of processes are reused.
    - ``file``: a file outside the run folder.
    - ``sysctl``: a kernel setting. The cleanup writes ``old`` if the value is
      still ``new``.
    - ``daemon``: Open vSwitch, if the run has started it. The cleanup stops it
      when no bridge is left.
    - ``part``: the folder of a part of the switch, or of the controller's
      state. The daemons of a part have its folder in their command lines.
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
        """Identity of the thing: a later entry replaces one with its key."""
        return self.kind, self.name


@dataclass(frozen=True)
class OwnershipTag:
    """The run that a journal belongs to, with the boot and time of its start.

    ``run``: a random identifier of 8 hexadecimal digits. ``name``: the run's
    name for people.
    """

    run: str
    name: str
    boot_id: str
    started_unix_s: float

    @property
    def group(self) -> int:
        """The device group of the run's veths: a number unique to the run."""
        return 0x4000_0000 | int(self.run, 16)


# Built once: that takes as long as reading a hundred lines.
_TAG = TypeAdapter(OwnershipTag)
_ENTRY = TypeAdapter(JournalEntry)


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
    """A journal in memory and on disk. Not for use by several threads at once.

    ``damage``: the first line that is JSON, but not of a journal, in words; or
    empty.
    """

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
        # Removals since the file was opened or rewritten.
        self._n_gone = 0

    @classmethod
    def create(cls, name: str, state: Path | None = None) -> CleanupJournal:
        """Makes the journal of a new run. ``name``: the run's, for people."""
        # OwnershipTag.group sets the 31st bit beside these.
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
        """Reads a journal from disk. Raises RunFailed if no line names its run.

        Lines that are not of a journal are left out. The first that is JSON is
        named in the result's ``damage``; others were cut short by a crash.
        """
        tag: OwnershipTag | None = None
        entries: dict[tuple[str, str], JournalEntry] = {}
        damage = ""
        for number, line in enumerate(_lines(path), 1):
            try:
                record = json.loads(line)
                content = _content(line, record)
            except json.JSONDecodeError:
                # A crash cut the line short. A line is on disk before the
                # things that it names are made, so that there are none.
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
            # Lines after a damaged one count: they name things to remove.
            if isinstance(content, OwnershipTag):
                tag = content
            elif isinstance(content, JournalEntry):
                entries[content.key] = content
            else:
                for key in content:
                    entries.pop(key, None)
        if tag is None:
            why = damage or "no line names its run"
            raise RunFailed(f"{path} is not a cleanup journal: {why}")
        journal = cls(path, tag, entries.values())
        journal.damage = damage
        return journal

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Entries of things not removed yet, in the order of recording."""
        return tuple(self._entries.values())

    def add(self, entries: Sequence[JournalEntry]) -> None:
        """Records things that are about to be made; on disk when this returns."""
        records = []
        for entry in entries:
            # Without the fields that belong to other kinds.
            fields = vars(entry).items()
            records.append({name: value for name, value in fields if value})
        # One write and one fsync for all entries: 5 ms for a thousand.
        self._append(records)
        for entry in entries:
            self._entries[entry.key] = entry

    def remove(self, entries: Sequence[JournalEntry]) -> None:
        """Records that things have been removed.

        If the disk is full, the file still names them. That is harmless: the
        cleanup finds that they no longer exist.
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
        """Replaces the journal's file by one with only the present entries.

        After a crash there is the old file or the new one; if the disk is full,
        the old one.
        """
        with suppress(OSError):
            self.write_fresh().replace(self.path)
            _sync_folder(self.path.parent)
        self._n_gone = 0

    @property
    def _fresh_path(self) -> Path:
        """Path of a rewritten journal, whose suffix is not that of journals."""
        return self.path.with_suffix(".new")

    def write_fresh(self) -> Path:
        """Writes the present entries to another file in the journal's folder.

        Returns its path. Raises OSError.
        """
        fresh = CleanupJournal(self._fresh_path, self.tag)
        fresh.path.unlink(missing_ok=True)
        fresh._append([{"kind": "run", **asdict(self.tag)}])
        fresh.add(self.entries)
        return fresh.path

    def delete(self) -> None:
        """Deletes the journal's files. For when nothing that it names is left."""
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
            # The next line must not continue one that a crash cut short.
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
    """True if a file, which must not be empty, ends with a line end."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _sync_folder(folder: Path) -> None:
    """Writes a folder's list of names to disk: fsync of a file leaves it out."""
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
    """Content of a line: a tag, an entry, or the keys of removed entries.

    ``record``: the line's JSON value, which may be of any type. Raises
    ValueError, TypeError, KeyError or AttributeError for a line that is not of
    a journal.
    """
    if record.get("kind") == "run":
        tag = _TAG.validate_json(line, strict=True)
        if not RUN_NAME.fullmatch(tag.run):
            raise ValueError(tag.run)
        return tag
    if record.get("kind") != "gone":
        return _ENTRY.validate_json(line, strict=True)
    keys = []
    for kind, name in record["names"]:
        keys.append((str(kind), str(name)))
    return keys


def journals(
    state: Path | None = None, *, damaged: bool = False
) -> list[CleanupJournal]:
    """All journals on disk, oldest first; deletes those without a whole line.

    For holders of the machine lock. Raises RunFailed for a damaged journal; with
    ``damaged`` it takes its readable lines, or skips it if none names its run.
    """
    on_disk = []
    for path in journal_paths(state):
        if _is_without_line(path):
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
    """Files of all journals, damaged ones too."""
    return sorted(((state or state_dir()) / "runs").glob("*.jsonl"))


def _is_without_line(path: Path) -> bool:
    """True if a run was killed while it wrote the first line: it made nothing."""
    return path.is_file() and b"\n" not in path.read_bytes()


def set_damaged_aside(
    state: Path | None, *, dry_run: bool
) -> list[tuple[Path, Path]]:
    """Renames damaged journals, and writes new ones with their readable entries.

    Returns the old and the new path of each; a dry run changes nothing.
    """
    moved = []
    for path in journal_paths(state):
        # Stays None where no line names a run.
        journal = None
        with suppress(RunFailed):
            journal = CleanupJournal.read(path)
            if not journal.damage:
                continue
        # Not damaged: ``journals`` deletes it.
        if _is_without_line(path):
            continue
        aside = path.with_suffix(f".damaged-{time.time_ns()}")
        moved.append((path, aside))
        if dry_run:
            continue
        if journal is None:
            path.rename(aside)
        else:
            fresh = journal.write_fresh()
            # Never without a journal at ``path``: for a moment the damaged one
            # has both names.
            aside.hardlink_to(path)
            fresh.replace(path)
    return moved


# ------------------------------------------------------------------------------- machine lock


GRACE_S = 3.0
"""Time that the lock's holder may take to write its name, or a dead holder's
lock to end.
"""


@contextmanager
def machine_lock(name: str, state: Path | None = None) -> Iterator[None]:
    """Holds the machine's lock for the block: the right to change its network.

    ``name``: the holder's, for people. Raises MachineCannot, naming the holder,
    if another testbed has the lock.
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
        # A full disk only leaves the holder without a name.
        with suppress(OSError):
            file.write(json.dumps(record).encode())
        try:
            yield
        finally:
            # A process that finds the lock taken again must not read this name.
            file.truncate(0)


def _lock(descriptor: int, path: Path) -> None:
    """Locks the open file at ``path``.

    Raises MachineCannot with the holder's name as soon as it is known, or
    without it after GRACE_S.
    """
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
    """Name of the lock's live holder, and the number of its process.

    None if it has not written them yet, or has died. The lock may outlive its
    holder: a forked child keeps the descriptor until it executes its program.
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
    """Sets a kernel setting to ``new`` for the block, then to its old value.

    A value that somebody else writes meanwhile stays. Without the setting's file
    nothing happens.
    """
    # Without a file there is nothing to set.
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
        # In this order: after a crash between the two, the cleanup sees the
        # old value and leaves it.
        if is_changed(entry):
            path.write_text(old, encoding="ascii")
        journal.remove([entry])


def is_changed(entry: JournalEntry) -> bool:
    """True while a kernel setting has the value that the run gave it.

    False if that was its old value too, or somebody has changed it since.
    Raises OSError.
    """
    # Word by word, as the kernel separates a setting's numbers by tabs.
    current = Path(entry.name).read_text(encoding="ascii").split()
    return current == entry.new.split() and current != entry.old.split()


@contextmanager
def expedited_rcu(journal: CleanupJournal) -> Iterator[None]:
    """Expedites the kernel's RCU grace periods for the block, where it can.

    The switch opens and closes a packet socket for each port, and each close
    waits for a grace period: some 15 ms, or 2 ms expedited.
    """
    with ExitStack() as stack:
        # Without it everything only takes longer: a container's /sys may be
        # read-only, or the journal's disk full.
        if os.access(RCU_EXPEDITED, os.W_OK):
            with suppress(OSError):
                stack.enter_context(setting(RCU_EXPEDITED, "1", journal))
        yield
