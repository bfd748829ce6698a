"""The constants in the scripts that made the published sets, read from their text, never run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from classwise.corruptions.severities import C19, TABLES


def read_constants(text: str) -> dict[str, list[Any]]:
    """The list that `c` is taken from in every function that is a corruption."""
    found = {}
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef) or function.name not in C19:
            continue
        names: dict[str, Any] = {}
        for line in function.body:
            if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Name):
                continue
            name, value = line.targets[0].id, line.value
            if isinstance(value, ast.Constant):
                names[name] = value.value
            if name == "c" and isinstance(value, ast.Subscript):
                found[function.name] = _value(value.value, names)
    return found


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    """Numbers, their products, lists of them, and the arguments of a range."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Call(args=parts):
            return [_value(part, names) for part in parts]
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left, names) * _value(right, names)
    raise ValueError(f"cannot read {ast.unparse(node)}")


def differences(path: Path, size: int) -> tuple[list[str], int]:
    """Where our table of a size differs from a script, and how many values were compared."""
    script, ours = read_constants(path.read_text()), TABLES[size]
    found, count = [], 0
    for name in C19:
        for severity, (here, there) in enumerate(
            zip(ours[name], script.get(name, [None] * 5), strict=True), 1
        ):
            mine = list(here) if isinstance(here, tuple) else [here]
            other = there if isinstance(there, list) else [there]
            count += len(mine)
            if mine != other:
                found.append(f"{name}-{severity}: {mine} here, {other} there")
    return found, count
