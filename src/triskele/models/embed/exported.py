"""A folder with a model that sentence-transformers exported to ONNX: what it says of itself before it is loaded."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.embed.families import Family, family
from triskele.models.embed.manifest import TOKENIZER_FILE
from triskele.models.embed.protocol import Encoding

if TYPE_CHECKING:
    from triskele.models.embed.exported_runtime import ExportedRuntime

GRAPHS = ("onnx/model.onnx", "model.onnx")
# The last one is for graphs that give the vector of a text themselves.
POOLINGS = ("mean", "cls", "last", "graph")
# Older versions of sentence-transformers write a flag for each, newer ones a single word.
_FLAG = "pooling_mode_"
_POOLING_NAMES = {"cls_token": "cls", "cls": "cls", "mean_tokens": "mean", "mean": "mean", "lasttoken": "last"}
_KNOWN_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
_USUAL_TOKENS, _MOST_TOKENS = 512, 100_000
_WHOLE_BYTES, _SAMPLES, _SAMPLE_BYTES = 1 << 26, 64, 1 << 16


@dataclass(frozen=True, slots=True)
class Export:
    """What is known of an exported model before it is loaded."""

    folder: Path
    graph: Path
    name: str
    fingerprint: str
    prompts: Family
    dimensions: int
    max_tokens: int

    @property
    def has_tokens(self) -> bool:
        """Whether single tokens have vectors that mean something: where their mean is what was trained."""
        return self.prompts.pooling == "mean"


def read_export(folder: Path, settings: Family | None = None) -> Export:
    """Read a folder; what the settings leave empty comes from the folder, then from the family of its name."""
    graph = find_graph(folder)
    config = read_json(folder / "config.json")
    said = str(config.get("_name_or_path") or "")
    known = family(folder.resolve().name, said)
    prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    given = settings or Family()
    chosen = Family(
        given.query or str(prompts.get("query") or known.query),
        given.document or str(prompts.get("document") or prompts.get("passage") or known.document),
        given.pooling or _pooling(folder) or known.pooling,
    )
    if chosen.pooling not in POOLINGS:
        raise BadInput(
            f"how does the model in {folder} make one vector of many? Set its pooling to mean, cls, last or graph"
        )
    if chosen.pooling != "graph":
        _refuse_unknown_modules(folder)
    name = re.sub(r"[^\w.-]", "-", folder.resolve().name)
    size, tokens = vector_length(folder, config), _max_tokens(folder, config)
    mark = weights_mark(files_of(graph, folder / TOKENIZER_FILE), chosen.document, chosen.pooling, str(tokens))
    return Export(folder, graph, name, f"{name}@{mark}", chosen, size, tokens)


class ExportedEmbedder:
    """An Embedder over an exported model; reads its settings at once and the weights when first used."""

    def __init__(self, folder: Path, settings: Family | None = None, threads: int = 1) -> None:
        self._export = read_export(folder, settings)
        self._threads = threads
        self._loading = Lock()
        self._loaded: ExportedRuntime | None = None

    @property
    def fingerprint(self) -> str:
        """The folder's name and a hash of weights, words, pooling and the prompt of texts."""
        return self._export.fingerprint

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self._export.dimensions

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector; 0 where the model has none that mean something."""
        return self._export.dimensions if self._export.has_tokens else 0

    def encode_query(self, text: str) -> Encoding:
        """Encode one question; what goes beyond one window of tokens is not read."""
        return self._runtime().encode([text], self._export.prompts.query, most_windows=1)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
        return self._runtime().encode(texts, self._export.prompts.document) if texts else []

    def _runtime(self) -> ExportedRuntime:
        with self._loading:
            if self._loaded is None:
                # Imported here: numpy and onnxruntime cost more than most commands do.
                from triskele.models.embed.exported_runtime import ExportedRuntime

                self._loaded = ExportedRuntime.load(self._export, self._threads)
            return self._loaded


def find_graph(folder: Path) -> Path:
    """The graph of a model folder."""
    for place in GRAPHS:
        if (folder / place).is_file():
            return folder / place
    raise ModelUnavailable(f"No model in {folder}: expected {' or '.join(GRAPHS)} with {TOKENIZER_FILE} beside it")


def read_json(path: Path) -> dict[str, Any]:
    """A file of settings; empty where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"A model's settings cannot be read: {path} ({type(error).__name__})") from error
    return found if isinstance(found, dict) else {}


def files_of(graph: Path, *others: Path) -> list[Path]:
    """A graph, the files beside it that hold its weights, and others."""
    return [graph, *sorted(graph.parent.glob(f"{graph.name}[_.]*data*")), *others]


def weights_mark(files: Sequence[Path], *settings: str) -> str:
    """A short hash of a model's files and of the settings that change its vectors."""
    digest = hashlib.sha256("\n".join(settings).encode())
    for path in files:
        try:
            _read_into(digest, path)
        except OSError as error:
            raise ModelUnavailable(f"A model file cannot be read: {path} ({error.strerror})") from error
    return digest.hexdigest()[:16]


def _read_into(digest: Any, path: Path) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "big"))
    with path.open("rb") as opened:
        if size <= _WHOLE_BYTES:
            digest.update(opened.read())
            return
        # Training changes weights everywhere: samples tell two models apart without reading gigabytes at every start.
        for number in range(_SAMPLES):
            opened.seek(number * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            digest.update(opened.read(_SAMPLE_BYTES))


def _pooling(folder: Path) -> str:
    config = read_json(folder / "1_Pooling" / "config.json")
    said = config.get("pooling_mode")
    modes = [said] if said else [flag.removeprefix(_FLAG) for flag in config if flag.startswith(_FLAG) and config[flag]]
    known = [_POOLING_NAMES.get(mode, "") for mode in modes if isinstance(mode, str)]
    if modes and (len(known) != 1 or not known[0] or config.get("include_prompt") is False):
        raise ModelUnavailable(f"The model in {folder} pools in a way that is not known here: {modes}")
    return known[0] if known else ""


def _refuse_unknown_modules(folder: Path) -> None:
    """A layer after the graph that nobody runs would make every vector wrong."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = {str(module["type"]).rpartition(".")[2] for module in modules}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelUnavailable(f"A model's settings cannot be read: {folder / 'modules.json'}") from error
    if unknown := sorted(kinds - _KNOWN_MODULES):
        raise ModelUnavailable(f"The model in {folder} ends in a layer that is not known here: {', '.join(unknown)}")


def vector_length(folder: Path, config: dict[str, Any]) -> int:
    """How long a model's vectors are, by its own settings."""
    pooling = read_json(folder / "1_Pooling" / "config.json")
    said = [pooling.get(name) for name in ("embedding_dimension", "word_embedding_dimension")]
    for found in (*said, *(config.get(name) for name in ("hidden_size", "dim", "d_model"))):
        if isinstance(found, int) and found > 0:
            return found
    raise ModelUnavailable(
        f"The model in {folder} does not say how long its vectors are: config.json has no hidden_size"
    )


def _max_tokens(folder: Path, config: dict[str, Any]) -> int:
    said = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    said = said or read_json(folder / "tokenizer_config.json").get("model_max_length")
    # A tokenizer without a limit says so with a number beyond all texts.
    if isinstance(said, int) and 0 < said < _MOST_TOKENS:
        return said
    positions = config.get("max_position_embeddings")
    # Some families count their positions from two.
    return min(_USUAL_TOKENS, positions - 2) if isinstance(positions, int) and positions > 2 else _USUAL_TOKENS
