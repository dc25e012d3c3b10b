"""What every training run shares: device, optimizer with full-precision weights, schedule, log."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

WARMUP = 0.05
CLIP = 1.0


def device() -> str:
    """The GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype(where: str | torch.device) -> torch.dtype:
    """bf16 on the GPU; full precision on a CPU, which is for tests."""
    return torch.bfloat16 if str(where).startswith("cuda") else torch.float32


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    begun = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun:.1f} s", flush=True)


@dataclass(slots=True)
class Optimizer:
    """AdamW over float32 copies of bf16 weights; the rate warms up, then falls linearly to nothing.

    Progress is measured in steps or in seconds, whichever ends first.
    """

    groups: list[tuple[list[nn.Parameter], float]]
    steps: int
    seconds: float
    decay: float = 0.01
    step: int = 0
    begun: float = field(default_factory=time.monotonic)
    masters: list[list[Tensor]] = field(default_factory=list)
    inner: torch.optim.AdamW | None = None

    def __post_init__(self) -> None:
        """Copy the weights."""
        self.masters = [[p.detach().float().clone() for p in params] for params, _ in self.groups]
        named = [{"params": m, "lr": rate} for m, (_, rate) in zip(self.masters, self.groups, strict=True)]
        self.inner = torch.optim.AdamW(named, betas=(0.9, 0.98), weight_decay=self.decay)

    def progress(self) -> float:
        """From 0 to 1."""
        return max(self.step / self.steps, (time.monotonic() - self.begun) / self.seconds)

    def update(self) -> None:
        """Apply the gradients."""
        done = self.progress()
        factor = min(1.0, max(done, (self.step + 1) / self.steps) / WARMUP) * max(0.0, 1 - done)
        params = [p for group, _ in self.groups for p in group]
        nn.utils.clip_grad_norm_(params, CLIP)
        for group, masters, (params, rate) in zip(self.inner.param_groups, self.masters, self.groups, strict=True):
            group["lr"] = rate * factor
            for param, master in zip(params, masters, strict=True):
                master.grad = None if param.grad is None else param.grad.float()
        self.inner.step()
        for masters, (params, _) in zip(self.masters, self.groups, strict=True):
            torch._foreach_copy_([p.data for p in params], masters)
            for param in params:
                param.grad = None
        self.step += 1

    def restored(self, model: nn.Module) -> nn.Module:
        """A copy of the model with its weights in full precision, to be saved."""
        precise = {id(p): m for masters, (params, _) in zip(self.masters, self.groups, strict=True)
                   for p, m in zip(params, masters, strict=True)}  # fmt: skip
        state = {name: precise.get(id(param), param).detach() for name, param in model.named_parameters()}
        twin = copy.deepcopy(uncompiled(model)).float()
        twin.load_state_dict(state, strict=False)
        return twin


def uncompiled(model: nn.Module) -> nn.Module:
    """The model with every compiled function taken off, which could not be copied."""
    for module in model.modules():
        module.__dict__.pop("rest", None)
    return model


def compile_layers(model: nn.Module) -> None:
    """Compile the part of each layer after its attention, one graph for all of them and any number of tokens."""
    if not torch.cuda.is_available():
        return
    # cuDNN would make a new plan for every shape.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._dynamo.config.recompile_limit = 64
    for layer in model.layers:
        layer.rest = torch.compile(layer.rest, dynamic=True)


def trainable(model: nn.Module, frozen: tuple[str, ...]) -> list[nn.Parameter]:
    """The trainable parameters: all except those under the named prefixes."""
    for name, param in model.named_parameters():
        param.requires_grad_(not name.startswith(frozen))
    return [param for param in model.parameters() if param.requires_grad]


def epochs(count: int, batch: int, generator: torch.Generator, where: str) -> Iterator[Tensor]:
    """Shuffled batches of row numbers without end."""
    while True:
        order = torch.randperm(count, generator=generator, device=where)
        yield from (order[i : i + batch] for i in range(0, count - batch + 1, batch))
