"""A user's own torch module as the encoder."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from addml.arrays import Array, as_like, to_numpy
from addml.encoders.encoder import expect_weights

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

ALIKE = 1e-3  # of the largest embedding: differences that devices and versions of torch may cause


class ModuleNetwork:
    """E networks of one module; a row of the weights (E, P) holds one network's parameters, flattened."""

    name: ClassVar[str] = "module"
    inputs = property(lambda self: math.prod(self.shape))
    operations = property(lambda self: 2 * math.prod(self.weights.shape))  # about two per weight

    def __init__(self, module: Module, shape: Sequence[int], weights: Array) -> None:
        """The module maps rows (b, *shape) to embeddings (b, w)."""
        self.module, self.shape, self.weights = module, tuple(shape), weights
        self.outputs = _outputs(module, self.shape)

    @classmethod
    def build(cls, encoder: Any, shape: Sequence[int], rngs: Sequence[np.random.Generator]) -> ModuleNetwork:
        """One network per generator, from copies of a module or from calls of a function that returns modules."""
        modules = [_build_module(encoder, rng) for rng in rngs]
        return cls(modules[0], shape, np.stack([_flat(module) for module in modules]).astype(np.float64))

    @classmethod
    def from_plain(cls, document: dict[str, Any], weights: np.ndarray, encoder: Any) -> ModuleNetwork:
        """The network of a saved model, from the user's code; raises ValueError if the code has changed."""
        module = _build_module(encoder, np.random.default_rng(0))
        expect_weights(weights, len(_flat(module)))
        network = cls(module, tuple(document["shape"]), weights)
        answers, saved = network.answers(), np.array(document["answers"])
        if answers.shape != saved.shape or (abs(answers - saved) > ALIKE * max(1e-6, abs(saved).max())).any():
            raise ValueError("its embeddings differ from those of the saved encoder")
        return network

    def with_weights(self, weights: Array) -> ModuleNetwork:
        network = copy.copy(self)
        network.weights = weights
        return network

    def is_matrix(self) -> Array:
        """Which of the P weights decay (1): trainable weights of parameters with at least two dimensions."""
        parameters = self.module.parameters()
        flags = [np.full(part.numel(), part.ndim > 1 and part.requires_grad) for part in parameters]
        return as_like(np.concatenate(flags), self.weights)

    def to_plain(self) -> dict[str, Any]:
        """The description in a model file, which holds no code."""
        return {"name": self.name, "module": type(self.module).__qualname__, "shape": list(self.shape)}

    def answers(self) -> np.ndarray:
        """Every member's embedding (E, w) of a fixed row, which differs if the module is another one."""
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
        """Embeddings (E, b, w) of flat rows x (E or 1, b, d) with these weights (E, P)."""
        import torch
        from torch.func import functional_call

        if any(buffer.device != weights.device for buffer in self.module.buffers()):
            self.module = copy.deepcopy(self.module).to(weights.device)
        rows = x.reshape(*x.shape[:2], *self.shape)
        named = dict(self.module.named_parameters())
        sizes = [part.numel() for part in named.values()]
        embeddings = []
        for e, flat in enumerate(weights):
            parameters = {}
            for (name, part), values in zip(named.items(), flat.split(sizes), strict=True):
                parameters[name] = (values if part.requires_grad else values.detach()).reshape(part.shape)
            embeddings.append(functional_call(self.module, parameters, (rows[min(e, len(rows) - 1)],)))
        return torch.stack(embeddings)


def _tensor(x: Any) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x


def _build_module(encoder: Any, rng: np.random.Generator) -> Module:
    """A copy of the module, or a new one, seeded by the member's generator; refuses layers that mix rows."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    if isinstance(encoder, torch.nn.Module):
        module = copy.deepcopy(encoder)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            module = encoder()
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        raise ValueError(f"encoder={encoder!r} returned {kind}; pass a torch.nn.Module or a function that returns one")
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"the encoder's layer {name!r} ({type(layer).__name__}) makes a row depend on its batch; "
                "freeze it with .eval(), or use GroupNorm or LayerNorm"
            )
    if not any(part.requires_grad for part in module.parameters()):
        raise ValueError("the encoder has no trainable parameters; add or unfreeze some")
    return module.float().eval()  # eval: with dropout, distances would be random


def _flat(module: Module) -> np.ndarray:
    return np.concatenate([part.detach().cpu().numpy().ravel() for part in module.parameters()])


def _outputs(module: Module, shape: Sequence[int]) -> int:
    """The width w of the module's embeddings of rows of this shape; raises ValueError if it cannot be an encoder."""
    import torch

    rows = torch.linspace(-1, 1, 2 * math.prod(shape)).reshape(2, *shape)
    try:
        with torch.no_grad():
            z, alone = module(rows), [module(row[None]) for row in rows]
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"the encoder cannot take rows of shape (b, {', '.join(map(str, shape))}): {error}") from None
    if not isinstance(z, torch.Tensor) or z.ndim != 2 or len(z) != 2:
        result = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        raise ValueError(f"the encoder returns {result} for two rows; it must return embeddings (2, w)")
    if any(part.shape != z[:1].shape for part in alone):
        raise ValueError(f"the encoder returns {tuple(alone[0].shape)} for one row; it must return an embedding (1, w)")
    if bool((abs(z - torch.cat(alone)) > ALIKE * abs(z).max().clip(1e-6)).any()):
        raise ValueError(
            "the encoder embeds two rows together differently from each alone: it is random, or a row depends on its "
            "batch, as in recurrent layers without batch_first=True"
        )
    return int(z.shape[1])
