"""The index of one tree: contents by path, and their segments.

A content is indexed once, by its hash, so a rename costs nothing. Segments never change; the manifest, which names
them, is replaced in one step, so readers see a whole state at any time.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from triskele.code import segment as segments
from triskele.code.languages import language_of, require
from triskele.code.parsing import ParsedFile, digest_of, parse
from triskele.code.secrets import detector
from triskele.code.segment import CodeSegment
from triskele.code.walk import UNREADABLE, FoundFile, Walk, read, unfit
from triskele.errors import BadInput, IndexUnavailable, NotFound
from triskele.text.files import disk_errors, expanded, file_lock

FORMAT = 2
FOLDER = "code"
MANIFEST_FILE = "manifest.json"
# Contents per segment while a tree is indexed: what an interruption may cost.
BATCH = 400
MAX_SEGMENTS = 8
# More changes than this are left to `triskele code index`.
MAX_REFRESHED = 200
# A file written while it was read may change again without a new time.
_RACE_NS = 50_000_000
_LOCK_S = 10.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """Size, time and content digest of a path; empty if left out."""

    size: int
    mtime_ns: int
    digest: str


@dataclass(frozen=True, slots=True)
class TreeManifest:
    """One state of an index: paths, folders and names of segments."""

    root: str
    entries: dict[str, Entry] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    segments: tuple[str, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    total: int = 0
    indexed_at: float = 0.0

    @property
    def waiting(self) -> int:
        """How many files of the tree were not read yet."""
        return max(0, self.total - len(self.entries))

    def to_json(self) -> dict[str, Any]:
        """The manifest as it is written."""
        return {
            "format": FORMAT,
            "root": self.root,
            "segments": list(self.segments),
            "skipped": self.skipped,
            "total": self.total,
            "indexed_at": self.indexed_at,
            "folders": self.folders,
            "entries": {path: [each.size, each.mtime_ns, each.digest] for path, each in self.entries.items()},
        }


class TreeIndex:
    """Reads and updates the index of one tree."""

    def __init__(self, home: Path, root: Path) -> None:
        self.root = root
        self.folder = home / FOLDER / sha256(os.fsencode(root)).hexdigest()[:16]
        self._loaded: dict[str, CodeSegment] = {}
        self._read_at = 0
        self._watched: tuple[TreeManifest, list[tuple[str, str, int, int]]] | None = None

    @property
    def exists(self) -> bool:
        """Whether the tree was indexed."""
        return (self.folder / MANIFEST_FILE).is_file()

    def is_current(self) -> bool:
        """Whether no other process wrote since the last state was read."""
        return self._written_at() == self._read_at

    def manifest(self) -> TreeManifest:
        """The state on disk; NotFound if the tree was never indexed."""
        try:
            self._read_at = self._written_at()
            values = json.loads((self.folder / MANIFEST_FILE).read_bytes())
            if values.pop("format") != FORMAT:
                raise ValueError("another format")
            entries = {path: Entry(*each) for path, each in values.pop("entries").items()}
            return TreeManifest(entries=entries, segments=tuple(values.pop("segments")), **values)
        except FileNotFoundError:
            raise NotFound(f"{self.root} is not indexed: run `triskele code index {self.root}`") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise IndexUnavailable(
                f"the code index of {self.root} cannot be read: run `triskele code index {self.root} --rebuild`"
            ) from error

    def segments_of(self, manifest: TreeManifest) -> list[CodeSegment]:
        """The segments of a state; the last state stays in memory."""
        self._loaded = {
            name: self._loaded.get(name) or segments.load(self.folder / f"{name}.npz") for name in manifest.segments
        }
        return list(self._loaded.values())

    def update(self, progress: Progress | None = None, *, rebuild: bool = False) -> TreeManifest:
        """Walk the tree and index changes; interrupted runs continue."""
        require()
        if not self.root.is_dir():
            raise BadInput(f"{self.root} is not a folder")
        with disk_errors("the code index", IndexUnavailable):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            if rebuild:
                self._clear()
            return self._update(progress or (lambda *_: None))

    def _update(self, progress: Progress) -> TreeManifest:
        old = self._known()
        # What was left out is looked at again: it may be readable now, and it is counted.
        readable = {path: entry for path, entry in old.entries.items() if entry.digest}
        state, waiting = self._walked(replace(old, entries=readable))
        for start in range(0, len(waiting), BATCH):
            state = self._added(state, waiting[start : start + BATCH])
            self._write(state)
            progress(len(state.entries), state.total)
        state = self._compacted(replace(state, indexed_at=time.time()))
        self._write(state)
        self._sweep(state)
        return state

    def refresh(self, known: TreeManifest) -> tuple[TreeManifest, int]:
        """The state with changed files reread, and how many wait.

        What cannot be written, because another process writes or the disk is full, is still answered from.
        """
        if not self.root.is_dir():
            raise NotFound(f"{self.root} is gone: `triskele code remove {self.root}` deletes its index")
        changed, gone, is_structural = self._changes(known)
        if is_structural:
            state, waiting = self._walked(known)
            # An index that is being built is not finished by a search.
            most = 0 if known.waiting else MAX_REFRESHED
            state = self._added(replace(state, skipped=known.skipped), waiting[:most], may_fail=True)
            self._try_write(state)
            return state, 0
        if not changed and not gone:
            return known, 0
        entries = {path: entry for path, entry in known.entries.items() if path not in gone}
        state = self._added(
            replace(known, entries=entries, total=known.total - len(gone)), changed[:MAX_REFRESHED], may_fail=True
        )
        if len(state.segments) > MAX_SEGMENTS:
            state = self._compacted(state)
        self._try_write(state)
        return state, max(0, len(changed) - MAX_REFRESHED)

    def _walked(self, known: TreeManifest) -> tuple[TreeManifest, list[FoundFile]]:
        """The state of a new walk with the files that did not change, and the files to read."""
        walk = Walk(self.root)
        files = {each.path: each for each in walk.files()}
        same = {path: entry for path, entry in known.entries.items() if path in files and _is_same(entry, files[path])}
        state = replace(known, entries=same, folders=walk.times, total=len(files), skipped=dict(walk.skipped))
        return state, [each for path, each in files.items() if path not in same]

    def _changes(self, known: TreeManifest) -> tuple[list[FoundFile], set[str], bool]:
        """Changed and removed files, and whether a folder changed."""
        prefix, stat = str(self.root) + os.sep, os.stat
        for path, mtime_ns in known.folders.items():
            try:
                if stat(prefix + path).st_mtime_ns != mtime_ns:
                    return [], set(), True
            except OSError:
                return [], set(), True
        changed: list[FoundFile] = []
        gone: set[str] = set()
        for path, full_path, size, mtime_ns in self._watch(known):
            try:
                now = stat(full_path)
            except OSError:
                gone.add(path)
                continue
            if now.st_mtime_ns != mtime_ns or now.st_size != size:
                changed.append(FoundFile(path, now.st_size, now.st_mtime_ns))
        return changed, gone, False

    def _watch(self, known: TreeManifest) -> list[tuple[str, str, int, int]]:
        """Each path with place, size and time, cached for every search."""
        if self._watched is None or self._watched[0] is not known:
            prefix = str(self.root) + os.sep
            watched = [(path, prefix + path, each.size, each.mtime_ns) for path, each in known.entries.items()]
            self._watched = known, watched
        return self._watched[1]

    def _added(self, state: TreeManifest, files: Iterable[FoundFile], *, may_fail: bool = False) -> TreeManifest:
        """The state with files read; known contents are not parsed again."""
        held = {key for file in self.segments_of(state) for key in file.content_keys()}
        entries, parsed, skipped = dict(state.entries), dict[bytes, ParsedFile](), Counter(state.skipped)
        for file in files:
            source = read(self.root, file.path)
            if source is None:
                skipped[UNREADABLE] += 1
                entries[file.path] = Entry(file.size, file.mtime_ns, "")
                continue
            reason = unfit(file.path, source)
            digest = digest_of(source)
            mtime_ns = file.mtime_ns if time.time_ns() - file.mtime_ns > _RACE_NS else 0
            entries[file.path] = Entry(file.size, mtime_ns, "" if reason else digest.hex())
            if reason:
                skipped[reason] += 1
            elif digest not in held and digest not in parsed:
                parsed[digest] = parse(source, language_of(file.path, source[:4096]) or "bash")
        names = state.segments
        if parsed:
            name = f"{time.time_ns():x}"
            segment = segments.build(list(parsed.values()))
            with suppress(IndexUnavailable) if may_fail else nullcontext():
                segment.save(self.folder / f"{name}.npz")
            self._loaded[name] = segment
            names = (*names, name)
        return replace(state, entries=entries, segments=names, skipped=dict(skipped))

    def _compacted(self, state: TreeManifest) -> TreeManifest:
        """The state with segments merged, without unused contents."""
        parts = self.segments_of(state)
        alive = {bytes.fromhex(entry.digest) for entry in state.entries.values() if entry.digest}
        wanted = [np.array([key in alive for key in part.content_keys()], dtype=bool) for part in parts]
        if not parts or (len(parts) == 1 and wanted[0].all()):
            return state
        name = f"{time.time_ns():x}"
        merged = segments.merge(parts, wanted)
        merged.save(self.folder / f"{name}.npz")
        self._loaded = {name: merged}
        return replace(state, segments=(name,))

    def remove(self) -> None:
        """Delete the index; the tree stays as it is."""
        if not self.exists:
            raise NotFound(f"{self.root} is not indexed")
        with self._locked():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _known(self) -> TreeManifest:
        try:
            manifest = self.manifest()
            # What an older detection found is not kept: every file is read again.
            is_usable = all((each.detectors == detector()).all() for each in self.segments_of(manifest))
        except (NotFound, IndexUnavailable):
            is_usable = False
        if is_usable:
            return manifest
        self._clear()
        return TreeManifest(str(self.root))

    def _clear(self) -> None:
        self._loaded.clear()
        for path in self.folder.glob("*.npz"):
            path.unlink(missing_ok=True)
        (self.folder / MANIFEST_FILE).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with file_lock(self.folder / "lock", timeout_s=_LOCK_S) as is_held:
            if not is_held:
                raise IndexUnavailable(f"another process indexes {self.root}: wait until it is done")
            yield

    def _try_write(self, state: TreeManifest) -> None:
        with suppress(OSError, IndexUnavailable), file_lock(self.folder / "lock", timeout_s=0) as is_held:
            # What another process wrote since is newer than this state.
            if is_held and self.is_current():
                self._write(state)
                self._sweep(state)

    def _write(self, state: TreeManifest) -> None:
        part = self.folder / f"{MANIFEST_FILE}.part"
        with disk_errors("the code index", IndexUnavailable):
            part.write_text(json.dumps(state.to_json()), encoding="utf-8", errors="surrogatepass")
            part.replace(self.folder / MANIFEST_FILE)
        self._read_at = self._written_at()

    def _written_at(self) -> int:
        try:
            return (self.folder / MANIFEST_FILE).stat().st_mtime_ns
        except OSError:
            return 0

    def _sweep(self, state: TreeManifest) -> None:
        """Delete segments that the state does not name."""
        for path in self.folder.glob("*.npz"):
            if path.stem not in state.segments:
                path.unlink(missing_ok=True)


def _is_same(entry: Entry, found: FoundFile) -> bool:
    return entry.size == found.size and entry.mtime_ns == found.mtime_ns


def resolve(path: str | Path) -> Path:
    """The folder of a path with links followed."""
    return expanded(path).resolve()


def indexed_trees(home: Path) -> list[Path]:
    """The roots of all indexed trees, in the order of their paths."""
    roots: list[Path] = []
    for path in (home / FOLDER).glob(f"*/{MANIFEST_FILE}"):
        try:
            roots.append(Path(json.loads(path.read_bytes())["root"]))
        except (OSError, ValueError, KeyError):
            continue
    return sorted(roots)
