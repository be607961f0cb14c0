"""A small network, trained on scikit-learn's digits and pruned by every pattern of benchmarks.sparsity_model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from sklearn.datasets import load_digits

from benchmarks.sparsity_model import ANY, BLOCKS, NEIGHBOURS, mask

SPARSITIES = (0.5, 0.75, 0.875, 0.9375, 0.97)
PRUNED = [(pattern, each) for pattern in (ANY, BLOCKS) for each in SPARSITIES] + [
    (pattern, each) for each, pattern in NEIGHBOURS.items()
]
RATE, MOMENTUM = 0.05, 0.9
HIDDEN = 256  # outputs of a layer
EPOCHS, TUNED, HELD_OUT = 30, 15, 497  # before and after pruning; digits to test with


def network() -> torch.nn.Sequential:
    sizes = (64, HIDDEN, HIDDEN)
    layers = [each for pair in pairwise(sizes) for each in (torch.nn.Linear(*pair), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN, 10))


def train(
    model: torch.nn.Sequential, digits: Sequence[torch.Tensor], epochs: int, kept: Sequence[torch.Tensor]
) -> None:
    """Train by descent with momentum. kept: which weights of the hidden layers are not zeros."""
    x, y = digits
    weights, hidden = list(model.parameters()), layers_of(model)
    steps = [torch.zeros_like(each) for each in weights]
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            for weight, step, slope in zip(weights, steps, torch.autograd.grad(loss, weights), strict=True):
                step.mul_(MOMENTUM).add_(slope)
                weight.data -= RATE * step
            for layer, mine in zip(hidden, kept, strict=False):
                layer.weight.data *= mine


def layers_of(model: torch.nn.Sequential) -> list[Any]:
    """Return the layers that are pruned: all but the last."""
    return [each for each in model if isinstance(each, torch.nn.Linear)][:-1]


def accuracies(epochs: int = EPOCHS, tuned: int = TUNED) -> tuple[float, dict[tuple[str, float], float]]:
    """Return the accuracy on digits that were held out: of the dense network, and by pattern and sparsity."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the network is small
    found = load_digits()
    order = torch.randperm(len(found.target))
    x, y = torch.tensor(found.data, dtype=torch.float32)[order] / 16, torch.tensor(found.target)[order]
    train_set, (x_test, y_test) = (x[HELD_OUT:], y[HELD_OUT:]), (x[:HELD_OUT], y[:HELD_OUT])
    dense = network()
    train(dense, train_set, epochs, ())
    right = {}
    for pattern, sparsity in PRUNED:
        model = network()
        model.load_state_dict(dense.state_dict())
        train(model, train_set, tuned, [mask(layer.weight.detach(), pattern, sparsity) for layer in layers_of(model)])
        right[pattern.name, sparsity] = float((model(x_test).argmax(1) == y_test).float().mean())
    return float((dense(x_test).argmax(1) == y_test).float().mean()), right
