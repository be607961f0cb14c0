"""Kernels that name no context: their device calls, and their calls of such functions, get the one they are launched with.

Triton compiles and interprets a function by its syntax tree. ``with_context`` changes that tree before: the function gets a
first parameter ``ctx``, and passes it on. So the kernel is the one that a program with contexts would write.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from pyshmem import device

PARAMETER = "ctx"
MARK = "without_context"  # an attribute of functions that take the context as with_context adds it


def names_context(function: Callable[..., Any]) -> bool:
    """Return whether the function has a parameter ``ctx`` of its own."""
    return PARAMETER in inspect.signature(function).parameters


def signature_with_context(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of ``function`` with ``ctx`` as its first parameter."""
    own = inspect.signature(function)
    context = inspect.Parameter(PARAMETER, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return own.replace(parameters=[context, *own.parameters.values()])


def with_context(tree: ast.Module, function: Callable[..., Any]) -> ast.Module:
    """Return the tree of ``function`` with the parameter, and with it in all calls that want one and name none."""
    [definition] = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    definition.args.args.insert(0, ast.arg(PARAMETER))
    adding = _Adding(function)
    definition.body = [adding.visit(each) for each in definition.body]
    return ast.fix_missing_locations(tree)


class _Adding(ast.NodeTransformer):
    """Adds the context to calls. Names are looked up where the function was defined, as Triton does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        found = inspect.getclosurevars(function)
        self.names = {**function.__globals__, **found.nonlocals}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if _takes_context(self._called(node.func)) and not _has_context(node):
            node.args.insert(0, ast.copy_location(ast.Name(PARAMETER, ast.Load()), node))
        return node

    def _called(self, node: ast.expr) -> Any:
        """The function that a name stands for, None if it is local to the kernel."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self._called(node.value), node.attr, None)
        return None


def _takes_context(call: Any) -> bool:
    """Whether a function is a device call with a context, or a function that with_context has changed."""
    if getattr(call, MARK, False):
        return True
    name = getattr(call, "__name__", "")
    if name not in device.__all__ or getattr(device, name) is not call:
        return False
    return next(iter(inspect.signature(getattr(call, "fn", call)).parameters), None) == PARAMETER


def _has_context(node: ast.Call) -> bool:
    """Whether a call names another context: ``ctx=``, or that of a partition, as ``a.ctx``."""
    first = node.args[0] if node.args else None
    named = isinstance(first, ast.Attribute) and first.attr == PARAMETER
    return named or any(each.arg == PARAMETER for each in node.keywords)
