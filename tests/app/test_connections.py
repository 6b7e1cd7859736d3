"""Whose thread runs a slot (THR-2, THR-21), and what a typed signal does to a value (THR-22): found by reading."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from PySide6.QtCore import QObject

ROOT = Path(__file__).parents[2]
FILES = sorted(path for room in ("app", "widgets") for path in (ROOT / room).rglob("*.py"))
CONNECTS = ("connect", "singleShot")


def slot_of(call: ast.Call) -> ast.expr | None:
    """What a call connects: of `signal.connect(slot)` and `QTimer.singleShot(ms, slot)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in CONNECTS:
        return None
    args = [*call.args, *(word.value for word in call.keywords if word.arg in ("slot", "receiver"))]
    if call.func.attr == "singleShot":
        return args[-1] if args else None
    return args[0] if args else None


def complaint(slot: ast.expr, scope: list[ast.AST], tree: ast.Module) -> str:
    """Why this must not be connected; "" where it may. scope: what stands around the call, outermost first."""
    if isinstance(slot, ast.Lambda):
        return "a lambda"
    if isinstance(slot, ast.Call):
        if isinstance(slot.func, ast.Name) and slot.func.id == "getattr" and ast.unparse(slot.args[0]) == "self":
            return complaint_of_owner(scope)  # getattr(self, name): a method or a signal
        return "what a call returns, such as a partial"
    if isinstance(slot, ast.Name):
        return complaint_of_name(slot.id, scope, tree)
    if isinstance(slot, ast.Attribute):
        if isinstance(slot.value, ast.Name) and slot.value.id == "self":
            return complaint_of_owner(scope)
        return ""  # held by a run of the program, see test_every_connected_object_is_a_qobject
    return f"something else: {ast.unparse(slot)}"


def complaint_of_owner(scope: list[ast.AST]) -> str:
    owner = next(node for node in reversed(scope) if isinstance(node, ast.ClassDef))
    file = scope[0].file
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    found = module
    for node in scope:
        if isinstance(node, ast.ClassDef):
            found = getattr(found, node.name)
        elif isinstance(node, ast.FunctionDef) and scope.index(node) < scope.index(owner):
            return f"a method of the local class {owner.name}" if not _names_qobject(owner, module) else ""
    return "" if issubclass(found, QObject) else f"a method of {owner.name}, which is no QObject"


def _names_qobject(owner: ast.ClassDef, module) -> bool:
    """A class inside a function cannot be asked; its bases can."""
    namespace = vars(module) | vars(importlib.import_module("PySide6.QtCore"))
    bases = [namespace.get(ast.unparse(base)) for base in owner.bases]
    return any(isinstance(base, type) and issubclass(base, QObject) for base in bases)


def complaint_of_name(name: str, scope: list[ast.AST], tree: ast.Module) -> str:
    """A bare name is a function, unless it is a parameter or a loop's variable, whose values are looked at instead."""
    function = next((node for node in reversed(scope) if isinstance(node, ast.FunctionDef)), None)
    if function is None:
        return f"the function {name}"
    parameters = [argument.arg for argument in function.args.args]
    if name in parameters:
        place = parameters.index(name) - (parameters[0] == "self")
        for call, around in calls(tree):
            if isinstance(call.func, ast.Attribute) and call.func.attr == function.name:
                given = [word.value for word in call.keywords if word.arg == name] or call.args[place : place + 1]
                for value in given:
                    if said := complaint(value, around, tree):
                        return f"{said}, given to {function.name}"
        return ""
    for node in ast.walk(function):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple) and isinstance(node.iter, (ast.Tuple)):
            names = [ast.unparse(element) for element in node.target.elts]
            if name in names:
                values = [row.elts[names.index(name)] for row in node.iter.elts]
                return next((said for value in values if (said := complaint(value, scope, tree))), "")
    return f"the function {name}"


def calls(tree: ast.Module):
    """Every call with what stands around it."""

    def walk(node: ast.AST, scope: list[ast.AST]):
        inside = [*scope, node] if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) else scope
        if isinstance(node, ast.Call):
            yield node, inside
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(tree, [])


def complaints(source: str, file: Path) -> list[str]:
    tree = ast.parse(source)
    tree.file = file
    found = []
    for call, scope in calls(tree):
        slot = slot_of(call)
        if slot is not None and (said := complaint(slot, scope, tree)):
            found.append(f"{file.name}:{call.lineno}: {said}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_bound_methods_of_qobjects_are_connected(file):
    assert complaints(file.read_text(encoding="utf-8"), file) == []


KINDS = {
    "signal.connect(lambda: None)": "lambda",
    "signal.connect(partial(self.slot, 1))": "partial",
    "signal.connect(function)": "the function",
    "QTimer.singleShot(0, function)": "the function",
    "self._action(menu, lambda: None)": "lambda, given to _action",
    "self._action(menu, slot=function)": "the function function, given to _action",
    "signal.connect(self.slot, Qt.ConnectionType.QueuedConnection)": "no QObject",
}


@pytest.mark.parametrize("line", KINDS)
def test_the_reading_finds_each_kind(line):
    lines = (
        "def function(): ...",
        "class Preferences:",
        "    def _action(self, menu, slot): menu.triggered.connect(slot)",
        f"    def build(self, menu, signal): {line}",
    )
    found = complaints("\n".join(lines), ROOT / "app" / "preferences.py")
    assert len(found) == 1
    assert KINDS[line] in found[0]


def test_the_reading_lets_methods_and_signals_through():
    lines = (
        "class MainWindow:",
        "    def _action(self, menu, slot): menu.triggered.connect(slot)",
        "    def build(self, menu, signal):",
        "        self._action(menu, self.close)",
        "        signal.connect(self.close)",
        "        for text, slot in (('a', self.close), ('b', self.show)): signal.connect(slot)",
    )
    assert complaints("\n".join(lines), ROOT / "app" / "main_window.py") == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_signals_carry_objects(file):
    typed = [
        f"{file.name}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Signal"
        for argument in node.args
        if ast.unparse(argument) not in ("object", "bool")
    ]
    assert typed == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_painter_is_closed_also_when_its_painting_fails(file):
    """An open painter at the end of a paint event takes the process down."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    in_with = {id(item.context_expr) for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items}
    left_open = [
        f"{file.name}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "QPainter" and id(node) not in in_with
    ]
    assert left_open == []
