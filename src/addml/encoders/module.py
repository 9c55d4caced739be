"""A user's own torch module as the encoder."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from addml.arrays import Array, as_like, to_numpy
from addml.encoders.base import expect_weights

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

ALIKE = 1e-3  # of the largest embedding: what other devices and versions of torch may change


class ModuleNetwork:
    """E networks of one module: each has the module's parameters, one after another, as its row of weights (E, P)."""

    name: ClassVar[str] = "module"
    inputs = property(lambda self: math.prod(self.shape))
    operations = property(lambda self: 2 * math.prod(self.weights.shape))  # two a weight, about

    def __init__(self, module: Module, shape: Sequence[int], weights: Array) -> None:
        """The module takes rows (b, *shape) and gives embeddings (b, w)."""
        self.module, self.shape, self.weights = module, tuple(shape), weights
        self.outputs = _outputs(module, self.shape)

    @classmethod
    def build(cls, given: Any, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> ModuleNetwork:
        """Networks that start from a module as it is, or from modules that `given` makes, one for each generator."""
        made = [_made(given, rng) for rng in rngs]
        return cls(made[0], shape, np.stack([_flat(module) for module in made]).astype(np.float64))

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray, given: Any) -> ModuleNetwork:
        """The encoder of a saved model, whose code the user passes again; raises ValueError if they do not agree."""
        module = _made(given, np.random.default_rng(0))
        expect_weights(weights, len(_flat(module)))
        encoder = cls(module, tuple(document["shape"]), weights)
        ours, theirs = encoder.answers(), np.array(document["answers"])
        if ours.shape != theirs.shape or (abs(ours - theirs) > ALIKE * max(1e-6, abs(theirs).max())).any():
            raise ValueError("it makes other embeddings of the same numbers than the encoder that was saved")
        return encoder

    def with_weights(self, weights: Array) -> ModuleNetwork:
        changed = copy.copy(self)
        changed.weights = weights
        return changed

    def is_matrix(self) -> Array:
        """Which of the P weights decay (1): those learned that belong to a parameter of two dimensions or more."""
        parts = self.module.parameters()
        marks = [np.full(part.numel(), part.ndim > 1 and part.requires_grad) for part in parts]
        return as_like(np.concatenate(marks), self.weights)

    def to_plain(self) -> dict[str, Any]:
        """What a file says of the module; its code is the user's."""
        return {"name": self.name, "module": type(self.module).__qualname__, "shape": list(self.shape)}

    def answers(self) -> np.ndarray:
        """What every member makes of a row that is always the same, (E, w): another module answers otherwise."""
        row = np.linspace(-1, 1, self.inputs, dtype=np.float32)[None, None]
        return np.asarray(np.nan_to_num(to_numpy(self.embed(row))[:, 0], posinf=0.0, neginf=0.0))

    def embed(self, x: Array) -> Array:
        import torch

        with torch.no_grad():
            rows, weights = _tensor(x), _tensor(self.weights)
            blocks = [self._embed(weights, block) for block in rows.reshape(-1, *rows.shape[-3:])]
            z = torch.stack(blocks).reshape(*rows.shape[:-3], *blocks[0].shape)
        return z.numpy() if isinstance(x, np.ndarray) else z

    def forward(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        import torch

        with torch.enable_grad():
            weights = _tensor(self.weights).detach().requires_grad_()
            z = self._embed(weights, _tensor(x))

        def back(grad: Array) -> Array:
            (gradient,) = torch.autograd.grad(z, weights, _tensor(grad))
            return gradient.numpy() if isinstance(grad, np.ndarray) else gradient

        out = z.detach()
        return (out.numpy() if isinstance(x, np.ndarray) else out), back

    def _embed(self, weights: Tensor, x: Tensor) -> Tensor:
        """Embeddings (E, b, w) of flat rows x, (E or 1, b, d), by networks with these weights (E, P)."""
        import torch
        from torch.func import functional_call

        if any(buffer.device != weights.device for buffer in self.module.buffers()):
            self.module = copy.deepcopy(self.module).to(weights.device)
        rows, members = x.reshape(*x.shape[:2], *self.shape), []
        shapes = dict(self.module.named_parameters())
        for e, own in enumerate(weights):
            parts = zip(shapes.values(), own.split([part.numel() for part in shapes.values()]), strict=True)
            values = [(own if part.requires_grad else own.detach()).reshape(part.shape) for part, own in parts]
            parameters = dict(zip(shapes, values, strict=True))
            members.append(functional_call(self.module, parameters, (rows[min(e, len(rows) - 1)],)))
        return torch.stack(members)


def _tensor(x: Any) -> Tensor:
    """An array as a tensor, in the same memory."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x


def _made(given: Any, rng: np.random.Generator) -> Module:
    """A copy of the module, or a new one, whose random numbers are the member's own.

    It has no layer in which rows depend on each other: a row's score must not depend on the rows beside it.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    if isinstance(given, torch.nn.Module):
        module = copy.deepcopy(given)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            module = given()
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"encoder={given!r} made {type(module).__name__}; give a torch.nn.Module or what makes one")
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"the layer {name!r} of the encoder is {type(layer).__name__}, which makes a row depend on the rows "
                "beside it; freeze it with .eval(), or use GroupNorm or LayerNorm"
            )
    if not any(part.requires_grad for part in module.parameters()):
        raise ValueError("the encoder has no parameters to learn")
    return module.float().eval()  # no dropout: the closeness of two rows must not be chance


def _flat(module: Module) -> np.ndarray:
    return np.concatenate([part.detach().cpu().numpy().ravel() for part in module.parameters()])


def _outputs(module: Module, shape: Sequence[int]) -> int:
    """The width w of what the module gives for rows of this shape, each of them by itself."""
    import torch

    rows = torch.linspace(-1, 1, 2 * math.prod(shape)).reshape(2, *shape)
    try:
        with torch.no_grad():
            z, alone = module(rows), [module(row[None]) for row in rows]
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"the encoder cannot take rows of shape (b, {', '.join(map(str, shape))}): {error}") from None
    if not isinstance(z, torch.Tensor) or z.ndim != 2 or len(z) != 2:
        given = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        raise ValueError(f"the encoder gives {given} for two rows; embeddings (2, w) are wanted")
    if any(one.shape != z[:1].shape for one in alone):
        raise ValueError(f"the encoder gives {tuple(alone[0].shape)} for one row; embeddings (1, w) are wanted")
    if bool((abs(z - torch.cat(alone)) > ALIKE * abs(z).max().clip(1e-6)).any()):
        raise ValueError(
            "the encoder makes other embeddings of two rows together than of each alone: by chance, or because a row "
            "depends on the rows beside it, as in layers that take rows for steps; give those batch_first=True"
        )
    return int(z.shape[1])
