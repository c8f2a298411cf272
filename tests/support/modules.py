"""Texts of modules, read without importing them: modules of GPUs cannot be imported
everywhere.
"""

import ast
from importlib.util import find_spec
from pathlib import Path


def text_of(module):
    """Return the syntax tree of a module."""
    return ast.parse(Path(find_spec(module).origin).read_text())


def functions(tree):
    """Return the names and arguments of the functions of a module or a class, from its
    text.
    """
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
        for node in found
    }


def names_made_elsewhere(tree):
    """Return the names that a module imports to offer them, and names that it makes
    without `def`.
    """
    imported = [
        a for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names
    ]
    given = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    ]
    names = [
        name
        for target in given
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]
    return {a.asname for a in imported if a.asname == a.name} | {
        name.id for name in names
    }
