"""The operations that move many memories: import and export."""

from __future__ import annotations

import tempfile
from pathlib import Path

from triskele.exchange.records import ImportReport
from triskele.exchange.transfer import export_memories, import_memories
from triskele.serving.http import bodies
from triskele.serving.http.operations import NDJSON, Call, Exported, Operation, given
from triskele.stores.access_keys import REVEAL, WRITE


def import_stream(call: Call) -> ImportReport:
    """Import a file, all or nothing."""
    assert call.file is not None
    return import_memories(call.engine, call.file, **given(call.query))


def export_stream(call: Call) -> Exported:
    """Export all memories; the caller removes the file."""
    asked = call.query
    if asked.with_secrets:
        call.principal.require(REVEAL)
    folder = Path(tempfile.mkdtemp(prefix="triskele-"))
    target = folder / "export.jsonl"
    try:
        report = export_memories(
            call.engine,
            target,
            include_private=asked.private,
            with_secrets=asked.with_secrets,
            current_only=asked.current_only,
        )
    except BaseException:
        target.unlink(missing_ok=True)
        folder.rmdir()
        raise
    return Exported(target, report)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="import",
        method="POST",
        path="/v1/import",
        summary="Import a stream of memories, all or nothing",
        run=import_stream,
        reply=ImportReport,
        tag="transfer",
        scope=WRITE,
        query=bodies.ImportQuery,
        takes_file=True,
        errors=(404, 409),
    ),
    Operation(
        name="export",
        method="GET",
        path="/v1/export",
        summary="Export all memories, one JSON record a line",
        run=export_stream,
        reply=str,
        tag="transfer",
        query=bodies.ExportQuery,
        media=NDJSON,
    ),
)
