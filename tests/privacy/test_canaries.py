"""The search for canaries finds every shape it promises, and nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import canaries
import pytest
from canaries import Canaries, children, make

from triskele.privacy.detect import find

pytestmark = pytest.mark.slow
KIT = Canaries(make())
SOME = KIT.canaries[:: len(KIT.canaries) // 37]


def _numbers(data: bytes) -> set[int]:
    return {sighting.number for sighting in KIT.in_bytes(data)}


def test_there_are_a_thousand_different_canaries() -> None:
    assert len({canary.secret for canary in KIT.canaries}) == 1000
    assert make() == KIT.canaries and make(5, seed=1) != make(5)


def test_detection_sees_those_that_it_should() -> None:
    for canary in KIT.canaries[:200]:
        start = canary.memory.find(canary.secret)
        seen = any(
            finding.start <= start and start + len(canary.secret) <= finding.end for finding in find(canary.memory)
        )
        assert seen or not canary.found_by_rule, canary.memory


SHAPES = {
    "raw": lambda text: text.encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 after one": lambda text: base64.b64encode(b"1" + text.encode() + b" and more"),
    "base64 after two": lambda text: base64.b64encode(b"12" + text.encode() + b" and more"),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(b"x" + text.encode()),
    "hex": lambda text: text.encode().hex().encode(),
    "HEX": lambda text: text.encode().hex().upper().encode(),
    "first half": lambda text: text[: len(text) // 2 + 15].encode(),
    "second half": lambda text: text[len(text) // 2 - 4 :].encode(),
    "url": lambda text: quote(text).encode(),
    "form": lambda text: urlencode({"q": text}).encode(),
    "reversed": lambda text: text[::-1].encode(),
    "json": lambda text: json.dumps({"text": text}).encode(),
    "utf-16": lambda text: text.encode("utf-16"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_search_finds_a_planted_canary_in_every_shape(shape: str) -> None:
    for canary in SOME:
        data = b"noise \xff\x00" + SHAPES[shape](canary.secret) + b" more noise"
        assert _numbers(data) == {canary.number}, canary.secret


def test_the_memory_around_a_canary_is_no_sighting() -> None:
    for canary in SOME:
        assert KIT.in_text(canary.memory.replace(canary.secret, "")) == []


def test_noise_and_other_secrets_are_no_sightings() -> None:
    assert KIT.in_bytes(random.Random(3).randbytes(4_000_000)) == []
    assert Canaries(make(100, seed=1)).in_text("\n".join(canary.memory for canary in KIT.canaries)) == []
    assert KIT.in_bytes(b"") == [] and KIT.in_bytes(b"short") == []


def test_files_and_their_names_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "_CHUNK", 1000)
    token, other = KIT.canaries[0], KIT.canaries[7]
    (tmp_path / "deep").mkdir()
    # Across the border of two pieces.
    (tmp_path / "deep" / "wal").write_bytes(b"\0" * 980 + token.secret.encode() + b"\0" * 3000)
    (tmp_path / other.secret).write_bytes(b"")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"harmless"))
    sightings = KIT.in_folder(tmp_path)
    assert {sighting.number for sighting in sightings} == {0, 7}
    assert any(sighting.place.endswith("wal@980") for sighting in sightings)


def test_arguments_and_environment_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    token, other, own = (KIT.canaries[number].secret for number in (0, 7, 9))
    assert KIT.in_processes() == []
    wait = [sys.executable, "-c", "print('up', flush=True); input()", token]
    with subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "X": other}) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert child.pid in children(os.getpid())
        sightings = KIT.in_processes([child.pid])
        child.communicate(b"\n")
    assert {(sighting.number, sighting.place.split()[0]) for sighting in sightings} >= {(0, "cmdline"), (7, "environ")}
    monkeypatch.setenv("OWN", own)
    assert {sighting.number for sighting in KIT.in_processes()} == {9}
    assert KIT.in_processes([child.pid]) == KIT.in_processes(), "a process that has ended has nothing to show"
