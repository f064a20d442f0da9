"Functions say in which forms users call them; here that is compared with PyTorch."
import pkgutil

import pytest

import autograd_nb as ours
from autograd_nb import functions
from autograd_nb.forms import forms, hang, hang_functions, hang_methods, offered

OFFERED = sorted({name for name, _, _ in offered()})


@pytest.mark.parametrize("name", OFFERED)
def test_pytorch_has_the_same_forms(name):
    torch = pytest.importorskip("torch")
    for called in (name, name + "_"):
        for place, mine, theirs in (("torch", ours, torch), ("Tensor", ours.Tensor, torch.Tensor)):
            if hasattr(mine, called) != hasattr(theirs, called):
                said = "has no" if hasattr(mine, called) else "has a"
                pytest.fail(f"PyTorch {said} {place}.{called}: `forms` and `names` of {name} offer what PyTorch does; an operation of our own goes without.", pytrace=False)


def test_a_name_is_given_once():
    for place in (ours.Tensor, vars(ours)):
        with pytest.raises(TypeError, match="defined twice"): hang(place, "exp", lambda self: self)
    assert len(OFFERED) > 300


def test_what_is_offered_is_handed_over(monkeypatch):
    "A function with all four forms and a second name, and one that takes NumPy's names."
    from autograd_nb import forms as module

    class Number:
        value = 3

    table = {}
    monkeypatch.setattr(module, "OFFERED", table)
    monkeypatch.setattr(module, "REGISTRY", {})

    @forms("function method function_ method_", names="twice doubled")
    def twice(x): return 2 * x.value

    @forms("function", numpy_names=True)
    def along(input, dim=0): return dim

    def in_place(name, method):
        def twin(self):
            self.value = method(self)
            return name

        return twin

    package, number = {}, Number()
    hang_methods(Number, in_place)
    hang_functions(package, Number)
    assert set(package) == {"twice", "twice_", "doubled", "doubled_", "along"}
    assert package["along"](1, axis=7) == 7 and not hasattr(Number, "along")
    assert (number.twice(), number.doubled_(), package["doubled"](number)) == (6, "doubled", 12)


def test_no_family_is_called_like_a_function():
    "Python would put the module in the function's place when it is imported."
    families = [m.name for m in pkgutil.iter_modules(functions.__path__)]
    assert len(families) > 20 and not set(families) & set(OFFERED)
