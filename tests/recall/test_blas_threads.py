"""Matrix products on one thread, for as long as somebody asks, and as before afterwards."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index import dense
from triskele.index.dense import one_blas_thread
from triskele.recall import pipeline


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of a library that starts with eight; its last entry is the present one."""
    counts = [8]
    monkeypatch.setattr(dense, "_thread_counts", lambda: (lambda: counts[-1], counts.append))
    return counts


def test_one_inside_and_as_many_as_before_outside(threads: list[int]) -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert threads == [8, 1]
        assert threads == [8, 1]
    assert threads == [8, 1, 8]


def test_an_error_inside_gives_them_back(threads: list[int]) -> None:
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert threads == [8, 1, 8]


def test_who_leaves_first_does_not_take_it_from_the_others(threads: list[int]) -> None:
    together = Barrier(8, timeout=60)

    def ask(_: int) -> int:
        with one_blas_thread():
            together.wait()
            seen = threads[-1]
            together.wait()
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {1}
    assert threads[-1] == 8


def test_a_library_that_is_not_known_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_thread_counts", lambda: None)
    with one_blas_thread():
        pass


def test_a_recall_is_bounded(threads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    read = pipeline.read

    def watched(*given: object, **named: object) -> object:
        seen.append(threads[-1])
        return read(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "read", watched)
    settings = config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_RECALL_MODEL": "none"})
    with LocalEngine(settings, tmp_path) as engine:
        engine.remember("the kettle is red")
        engine.recall("kettle")
    assert seen == [1] and threads[-1] == 8


@pytest.mark.slow
def test_the_library_of_this_numpy_is_found() -> None:
    """In a process of its own without the variable that bounds it from outside."""
    code = (
        "import numpy as np; from triskele.index import dense\n"
        "shipped = 'openblas' in np.show_config(mode='dicts')['Build Dependencies']['blas']['name']\n"
        "found = dense._thread_counts()\n"
        "assert (found is not None) == shipped\n"
        "if found:\n"
        "    found[1](2)\n"
        "    with dense.one_blas_thread(): assert found[0]() == 1\n"
        "    assert found[0]() == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
