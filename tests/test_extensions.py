"""Operations, modes and classes of tensors that programs add, and what is refused: the same programs under PyTorch and here."""

import importlib
import sys
import types

import pytest
from _compare import assert_same_output, programs

PROGRAMS = programs("extensions")
REFUSALS = programs("refusals")


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    "`torch_of.part('library')` gives a program that module of the library it runs under."
    module = types.ModuleType("torch_of")
    module.part = lambda name: importlib.import_module(f"{sys._getframe(1).f_globals['torch'].__name__}.{name}")
    monkeypatch.setitem(sys.modules, "torch_of", module)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_extensions_do_what_they_do_in_pytorch(program):
    assert_same_output(program)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("program", REFUSALS.values(), ids=REFUSALS)
def test_refusals_are_those_of_pytorch(program):
    assert_same_output(program)
