"""The rules of the house that hold over all files: classes, names and who reads results."""

import ast
import inspect
import tomllib
from abc import ABC
from collections import Counter
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, is_typeddict

import pytest
from checkout import ROOT

import esbench
from esbench.algorithms.base import Algorithm

SOURCE = Path(esbench.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
BREAKS = ROOT / ".ci" / "breaks.toml"
# Files of a trial's folder.
RESULT_FILES = {"trial.json", "metrics.jsonl", "members.jsonl.gz", "result.json", "checkpoint.json"}


def module_name(path: Path) -> str:
    parts = ("esbench", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def classes() -> list[type[Any]]:
    found = []
    for path, tree in TREES.items():
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        module = import_module(module_name(path)) if names else None
        found += [getattr(module, name) for name in names]
    return found


def defined_functions(cls: type[Any]) -> dict[str, Any]:
    """Return the methods and properties that a class itself defines."""
    kinds = (staticmethod, classmethod, property)
    return {
        name: member
        for name, member in vars(cls).items()
        if inspect.isfunction(member) or isinstance(member, kinds)
    }


def is_abstract(cls: type[Any]) -> bool:
    """Whether a class has abstract methods or declares itself an abstract base."""
    return inspect.isabstract(cls) or ABC in cls.__bases__ or getattr(cls, "_is_protocol", False)


def is_final(cls: type[Any]) -> bool:
    return bool(vars(cls).get("__final__", False))


CLASSES = classes()
BASES = {base for cls in CLASSES for base in cls.__mro__[1:]}


def test_a_class_is_an_abstract_base_or_final() -> None:
    for cls in CLASSES:
        if is_typeddict(cls) or issubclass(cls, Enum):
            continue  # Python makes an enumeration with members final
        if issubclass(cls, BaseException) and cls in BASES:
            continue  # an exception is caught by its base class, which is raised too
        assert is_abstract(cls) != is_final(cls), cls
        assert not (is_final(cls) and cls in BASES), cls


def test_a_file_name_is_used_once() -> None:
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_no_concrete_method_is_overridden() -> None:
    for cls in CLASSES:
        for name in defined_functions(cls):
            if name.startswith("__"):
                continue
            for base in cls.__mro__[1:]:
                if base.__module__.partition(".")[0] == "esbench" and name in vars(base):
                    inherited = vars(base)[name]
                    assert getattr(inherited, "__isabstractmethod__", False), (
                        f"{cls.__qualname__}.{name} overrides {base.__qualname__}.{name}"
                    )


def test_the_constructor_of_an_algorithm_names_its_parameters() -> None:
    for cls in CLASSES:
        if issubclass(cls, Algorithm):
            parameters = list(inspect.signature(cls).parameters)
            assert parameters == ["settings", "center", "seed", "shapes"], cls


def test_no_two_types_share_a_name_unless_they_are_the_same() -> None:
    classes = [
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    aliases = {
        (node.target.id, ast.unparse(node.value))
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Name)
        and node.annotation.id == "TypeAlias"
        and node.value
    }
    names = Counter([*classes, *(name for name, _ in aliases)])
    assert [name for name, count in names.items() if count > 1] == []


def test_only_store_names_the_files_of_a_trial() -> None:
    for path, tree in TREES.items():
        if path.relative_to(SOURCE).parts[0] in {"store", "results"}:
            continue
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        }
        assert not RESULT_FILES & texts, path


@pytest.mark.skipif(not BREAKS.exists(), reason="a source distribution is without .ci")
def test_the_text_of_a_deliberate_break_is_in_its_file_once() -> None:
    for entry in tomllib.loads(BREAKS.read_text(encoding="utf-8"))["break"]:
        text = (ROOT / entry["file"]).read_text(encoding="utf-8")
        assert text.count(entry["old_text"]) == 1, entry["id"]
