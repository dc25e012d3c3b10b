"""A folder with an exported ONNX model, and the embedder over it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.embedder import Encoding, Family, LocalEmbedder, family
from triskele.models.manifest import TOKENIZER_FILE

if TYPE_CHECKING:
    from triskele.models.inference import ExportedRuntime

GRAPHS = ("onnx/model.onnx", "model.onnx")
# Older versions of sentence-transformers write one flag per mode, newer ones a single word.
_FLAG = "pooling_mode_"
_POOLING_NAMES = {"cls_token": "cls", "cls": "cls", "mean_tokens": "mean", "mean": "mean", "lasttoken": "last"}
_KNOWN_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
_USUAL_TOKENS, _MOST_TOKENS = 512, 100_000
_WHOLE_BYTES, _SAMPLES, _SAMPLE_BYTES = 1 << 26, 64, 1 << 16


@dataclass(frozen=True, slots=True)
class Export:
    """The settings of an exported model, read before its weights."""

    folder: Path
    graph: Path
    name: str
    fingerprint: str
    prompts: Family
    dimensions: int
    max_tokens: int

    @property
    def has_tokens(self) -> bool:
        """Whether token vectors are meaningful: trained on their mean."""
        return self.prompts.pooling == "mean"


def read_export(folder: Path) -> Export:
    """Read a folder; settings come from its files, then from the family."""
    graph = find_graph(folder)
    config = read_json(folder / "config.json")
    original = str(config.get("_name_or_path") or "")
    usual = read_prompts(folder, family(folder.resolve().name, original))
    prompts = replace(usual, pooling=_pooling(folder) or usual.pooling)
    if not prompts.pooling:
        raise BadInput(f"the pooling of the model in {folder} is unknown: set it to mean, cls or last")
    _refuse_unknown_modules(folder)
    name = re.sub(r"[^\w.-]", "-", folder.resolve().name)
    size, tokens = vector_length(folder, config), _max_tokens(folder, config)
    files = [graph, *sorted(graph.parent.glob(f"{graph.name}[_.]*data*")), folder / TOKENIZER_FILE]
    mark = weights_mark(files, prompts.document, prompts.pooling, str(tokens))
    return Export(folder, graph, name, f"{name}@{mark}", prompts, size, tokens)


class ExportedEmbedder(LocalEmbedder["ExportedRuntime"]):
    """An embedder over an exported model."""

    def __init__(self, folder: Path) -> None:
        self._export = export = read_export(folder)
        super().__init__(export.fingerprint, export.dimensions, export.dimensions if export.has_tokens else 0)

    def encode_query(self, text: str) -> Encoding:
        """Encode one query; tokens beyond the first window are dropped."""
        return self._runtime().encode([text], self._export.prompts.query, most_windows=1)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order."""
        return self._runtime().encode(texts, self._export.prompts.document) if texts else []

    def _load(self) -> ExportedRuntime:
        from triskele.models.inference import ExportedRuntime

        return ExportedRuntime.load(self._export)


def read_prompts(folder: Path, usual: Family) -> Family:
    """The usual prompts of a family, replaced by those in the folder."""
    prompts = read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    query, document = prompts.get("query"), prompts.get("document") or prompts.get("passage")
    return Family(str(query or usual.query), str(document or usual.document), usual.pooling)


def find_graph(folder: Path) -> Path:
    """The path of the graph in a model folder."""
    for name in GRAPHS:
        if (folder / name).is_file():
            return folder / name
    raise ModelUnavailable(f"No model in {folder}: expected {' or '.join(GRAPHS)} with {TOKENIZER_FILE} next to it")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"The settings of a model cannot be read: {path} ({type(error).__name__})") from error
    return document if isinstance(document, dict) else {}


def weights_mark(files: Sequence[Path], *settings: str) -> str:
    """A short hash of a model's files and of settings for vectors."""
    digest = hashlib.sha256("\n".join(settings).encode())
    for path in files:
        try:
            size = path.stat().st_size
            digest.update(size.to_bytes(8, "big"))
            with path.open("rb") as file:
                if size <= _WHOLE_BYTES:
                    digest.update(file.read())
                    continue
                # Training changes weights everywhere: samples tell two models apart, and no start reads gigabytes.
                for number in range(_SAMPLES):
                    file.seek(number * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
        except OSError as error:
            raise ModelUnavailable(f"A model file cannot be read: {path} ({error.strerror})") from error
    return digest.hexdigest()[:16]


def _pooling(folder: Path) -> str:
    config = read_json(folder / "1_Pooling" / "config.json")
    mode = config.get("pooling_mode")
    modes = [mode] if mode else [flag.removeprefix(_FLAG) for flag in config if flag.startswith(_FLAG) and config[flag]]
    poolings = [_POOLING_NAMES.get(mode, "") for mode in modes if isinstance(mode, str)]
    if modes and (len(poolings) != 1 or not poolings[0] or config.get("include_prompt") is False):
        raise ModelUnavailable(f"The model in {folder} has an unsupported pooling: {modes}")
    return poolings[0] if poolings else ""


def _refuse_unknown_modules(folder: Path) -> None:
    """Refuse layers after the graph: without them every vector is wrong."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = {str(module["type"]).rpartition(".")[2] for module in modules}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelUnavailable(f"The settings of a model cannot be read: {folder / 'modules.json'}") from error
    if unknown := sorted(kinds - _KNOWN_MODULES):
        raise ModelUnavailable(f"The model in {folder} has an unsupported layer: {', '.join(unknown)}")


def vector_length(folder: Path, config: dict[str, Any]) -> int:
    """The dimensions of a model's vectors, by its own settings."""
    pooling = read_json(folder / "1_Pooling" / "config.json")
    pooled = [pooling.get(name) for name in ("embedding_dimension", "word_embedding_dimension")]
    for size in (*pooled, *(config.get(name) for name in ("hidden_size", "dim", "d_model"))):
        if isinstance(size, int) and size > 0:
            return size
    raise ModelUnavailable(f"The model in {folder} has unknown dimensions: config.json has no hidden_size")


def _max_tokens(folder: Path, config: dict[str, Any]) -> int:
    limit = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limit = limit or read_json(folder / "tokenizer_config.json").get("model_max_length")
    # A tokenizer without a limit has a very large number here.
    if isinstance(limit, int) and 0 < limit < _MOST_TOKENS:
        return limit
    positions = config.get("max_position_embeddings")
    # Some families number their positions from two.
    return min(_USUAL_TOKENS, positions - 2) if isinstance(positions, int) and positions > 2 else _USUAL_TOKENS
