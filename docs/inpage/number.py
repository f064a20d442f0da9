"""What the pictures of a graph use of NumPy, for single numbers: in a page there is Python, but no NumPy.

The modules that record and draw graphs are the package's own (see pack.py). Where every value is one number, this much
of NumPy is enough for them, and a test holds their pictures to those that they draw with NumPy itself.
"""

import math
from contextlib import nullcontext


class generic:
    pass


class bool_(generic):
    pass


class integer(generic):
    pass


class complexfloating(generic):
    pass


class dtype:
    kind = "f"

    def __init__(self, name="float64"):
        self.name = name

    def __eq__(self, other):
        return getattr(other, "name", getattr(other, "__name__", other)) == self.name

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name


class float64(float, generic):
    pass


class float32(float, generic):
    pass


class ndarray:
    "One number."

    shape, ndim, size, nbytes, dtype = (), 0, 1, 8, dtype()

    def __init__(self, number):
        self.number = float(number)

    def __getitem__(self, at):
        assert at in ((), ...), "one number has no parts"
        return self.number

    def __float__(self):
        return self.number

    def item(self):
        return self.number

    def tolist(self):
        return self.number

    def astype(self, kind):
        return self

    def reshape(self, *shape):
        return self

    def flat(self):
        return [self.number]


def asarray(x, dtype=None):
    return x if isinstance(x, ndarray) else ndarray(x)


array = asarray


def array_equal(a, b, equal_nan=False):
    a, b = float(a), float(b)
    return a == b or equal_nan and math.isnan(a) and math.isnan(b)


def sum(a):
    return float(a)


def square(a):
    return float(a) * float(a)


def sqrt(a):
    return math.sqrt(a)


def abs(a):
    return math.fabs(float(a))


def prod(shape):
    return math.prod(shape)


def ndim(a):
    return 0


def shape(a):
    return ()


def errstate(**how):
    return nullcontext()
