"""What a page computes of the reader's own function: the engine of chapter 8, and the pictures of notebooks.

`answer` is called by own.js (in a worker, by Pyodide) and by the build (for the first picture of a page).
"""

import ast
import math
import operator

from autograd_nb.viz.captions import caption_css, caption_html, failure_words, line_css, result_words
from autograd_nb.viz.expressions import ExpressionError, in_python, parse_expression, variables_in
from autograd_nb.viz.scalar import Value, scalar_recording, value
from autograd_nb.viz.steps import Frames, fold_recording
from autograd_nb.viz.svg import css, frame_css

# The engine of the chapter knows what its examples need. These are its functions by the same pattern: a value, and the
# local derivative. Where mathematics has no number (log(-1)), a page shows nan, as the library does, and goes on.
NAN, INF = math.nan, math.inf


def guarded(f, *xs):
    try:
        result = f(*xs)
        return NAN if isinstance(result, complex) else float(result)
    except ValueError:
        return NAN
    except OverflowError:
        return INF


def log(x):
    return math.log(x) if x > 0 else -INF if x == 0 else NAN


def over(a, b):
    return a / b if b else NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)


def power(x, n):
    if x == 0 and n < 0:
        return INF
    return x**n


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else 1 - 1 / (1 + math.exp(x))


UNARY = {
    "exp": (math.exp, math.exp),
    "log": (log, lambda x: over(1.0, x) if x >= 0 else NAN),
    "sin": (math.sin, math.cos),
    "cos": (math.cos, lambda x: -math.sin(x)),
    "tan": (math.tan, lambda x: 1 + math.tan(x) ** 2),
    "tanh": (math.tanh, lambda x: 1 - math.tanh(x) ** 2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "sqrt": (math.sqrt, lambda x: over(0.5, math.sqrt(x))),
    "abs": (abs, lambda x: float((x > 0) - (x < 0)) if x == x else NAN),
    "relu": (lambda x: x if x > 0 or x != x else 0.0, lambda x: float(x > 0)),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "sinh": (math.sinh, math.cosh),
    "cosh": (math.cosh, math.sinh),
    "asin": (math.asin, lambda x: over(1.0, math.sqrt(1 - x * x))),
    "acos": (math.acos, lambda x: -over(1.0, math.sqrt(1 - x * x))),
    "atan": (math.atan, lambda x: 1 / (1 + x * x)),
    "log2": (lambda x: log(x) / math.log(2), lambda x: over(1 / math.log(2), x) if x >= 0 else NAN),
    "log10": (lambda x: log(x) / math.log(10), lambda x: over(1 / math.log(10), x) if x >= 0 else NAN),
    "sum": (lambda x: x, lambda x: 1.0),
    "mean": (lambda x: x, lambda x: 1.0),
    "prod": (lambda x: x, lambda x: 1.0),
}


def unary(name, f, slope):
    return lambda self: Value(guarded(f, self.data), ((self, guarded(slope, self.data)),), name)


def choice(name, better):
    def apply(self, other):
        other = value(other)
        a, b = self.data, other.data
        first = 0.5 if a == b else float(better(a, b))
        return Value(a if better(a, b) else b, ((self, first), (other, 1 - first)), name)

    return apply


def raised(self, n):
    "`self ** n`; an exponent that is a Value has a derivative as well."
    if not isinstance(n, Value):
        slope = n * guarded(power, self.data, n - 1) if n else 0.0
        return Value(guarded(power, self.data, n), ((self, slope),), f"pow {n}")
    result = guarded(power, self.data, n.data)
    growth = 0.0 if self.data == 0 <= n.data else result * guarded(log, self.data)  # 0 ** n stays 0
    parents = (self, n.data * guarded(power, self.data, n.data - 1)), (n, growth)
    return Value(result, parents, "pow")


def divided(self, other):
    other = value(other)
    a, b = self.data, other.data
    return Value(over(a, b), ((self, over(1.0, b)), (other, -over(over(a, b), b))), "div")


def reduced(self, other):
    other = value(other)
    return Value(self.data - other.data, ((self, 1.0), (other, -1.0)), "sub")


def negated(self):
    return Value(-self.data, ((self, -1.0),), "neg")


def no_matrices(self, other):
    raise ExpressionError("@ multiplies matrices, and these are numbers: write *")


for name, (f, slope) in UNARY.items():
    setattr(Value, name, unary(name, f, slope))
Value.maximum, Value.minimum = choice("maximum", lambda a, b: a > b), choice("minimum", lambda a, b: a < b)
Value.__pow__, Value.__rpow__ = raised, lambda self, other: raised(value(other), self)
Value.__truediv__, Value.__rtruediv__ = divided, lambda self, other: divided(value(other), self)
Value.__sub__, Value.__rsub__ = reduced, lambda self, other: reduced(value(other), self)
Value.__neg__ = negated
Value.__matmul__ = Value.__rmatmul__ = no_matrices


def names_in(text: str) -> list[str]:
    "The variables of an expression in the order in which they are read; of a `def`, its inputs."
    if not is_function(text):
        return variables_in(text)
    try:
        return [argument.arg for argument in ast.parse(in_python(text)).body[0].args.args]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []


# A function of several statements ----------------------------------------------------------------------------------

STEPS = 2000  # statements and operations that may run
CARDS = 40  # of which a picture may consist; what repeats itself is one
LETTERS = 12  # of a name: it stands beside a slider
KNOWN = "there are assignments, `if`, `while`, `for` over range(…), and `return`"
COMPARISONS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne}


def is_function(text: str) -> bool:
    return text.lstrip().startswith("def ")


def parse_function(text: str):
    """A function of keywords that does what the `def` in `text` says. Its statements are walked through here, and what is
    computed in them is read by `parse_expression`, so nothing of it runs as Python. Raises ExpressionError."""
    try:
        body = ast.parse(in_python(text)).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"line {getattr(error, 'lineno', None) or 1}: this is not complete Python ({getattr(error, 'msg', error)})") from None
    if len(body) != 1:
        raise ExpressionError(f"line {body[1].lineno}: one function alone, with nothing behind it")
    function, = body
    if not isinstance(function, ast.FunctionDef):
        raise ExpressionError("write `def f(x):`, and what it does on the lines below")
    asked = function.args
    if not asked.args or len({argument.arg for argument in asked.args}) < len(asked.args) or asked.posonlyargs or asked.kwonlyargs or asked.vararg or asked.kwarg or asked.defaults or function.decorator_list:
        raise ExpressionError("line 1: the inputs are plain names, at least one, each once, such as def f(x, y); sliders give their values")

    def run(**inputs):
        known, left = dict(inputs), STEPS

        def spend(steps):
            nonlocal left
            left -= steps
            if left < 0:
                raise ExpressionError(f"more than {STEPS} steps would run: let the loop be shorter")

        def computed(node):
            spend(sum(isinstance(part, ast.BinOp | ast.UnaryOp | ast.Call) for part in ast.walk(node)))
            return parse_expression(ast.unparse(node), known)(**known)

        def whole(node):
            number = computed(node)
            if isinstance(number, Value) or not math.isfinite(number) or number != int(number):
                raise ExpressionError("range() takes whole numbers that do not depend on the inputs")
            return int(number)

        def holds(test):
            "Whether a comparison holds of the numbers at hand. The derivative is that of the way that is taken."
            if not isinstance(test, ast.Compare) or any(type(sign) not in COMPARISONS for sign in test.ops):
                raise ExpressionError("a condition compares numbers, such as x > 0")
            numbers = [getattr(each, "data", each) for each in map(computed, (test.left, *test.comparators))]
            return all(COMPARISONS[type(sign)](a, b) for sign, a, b in zip(test.ops, numbers, numbers[1:]))

        def name(target):
            if not isinstance(target, ast.Name):
                raise ExpressionError("a value is given to one name at a time, such as a = x*x")
            return target.id

        def done(node):
            "Do one statement; what it returns, if it does."
            spend(1)
            if isinstance(node, ast.Return) and node.value:
                return computed(node.value)
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = name(node.targets[0])
                known[target] = computed(node.value)
            elif isinstance(node, ast.AugAssign):
                known[name(node.target)] = computed(ast.BinOp(ast.Name(name(node.target), ast.Load()), node.op, node.value))
            elif isinstance(node, ast.If):
                return block(node.body if holds(node.test) else node.orelse)
            elif isinstance(node, ast.While) and not node.orelse:
                while holds(node.test):
                    spend(1)
                    found = block(node.body)
                    if found is not None:
                        return found
            elif isinstance(node, ast.For) and not node.orelse:
                counted = node.iter
                if not (isinstance(counted, ast.Call) and isinstance(counted.func, ast.Name) and counted.func.id == "range" and 1 <= len(counted.args) <= 3 and not counted.keywords):
                    raise ExpressionError("a loop goes over range(…), such as for k in range(3)")
                ends = [whole(end) for end in counted.args]
                if len(ends) == 3 and not ends[2]:
                    raise ExpressionError("the step of range() must not be zero")
                for k in range(*ends):
                    known[name(node.target)] = float(k)
                    found = block(node.body)
                    if found is not None:
                        return found
            elif not (isinstance(node, ast.Pass) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                raise ExpressionError(f"{ast.unparse(node).splitlines()[0]!r} is not understood here: {KNOWN}")
            return None

        def block(statements):
            for node in statements:
                try:
                    found = done(node)
                except ExpressionError as error:
                    raise error if str(error).startswith("line ") else ExpressionError(f"line {node.lineno}: {error}") from None
                if found is not None:
                    return found
            return None

        found = block(function.body)
        if found is None:
            raise ExpressionError("the function returns nothing: end it with `return` and what it computed")
        return found

    return run


def recorded(run, inputs: dict):
    "The recording of `run` at `inputs`, with one card for the rounds of a long loop."
    recording, _ = scalar_recording(lambda **variables: value(run(**variables)), inputs, most=STEPS)
    if len(recording.graph.nodes) > CARDS:
        recording = fold_recording(recording, [node.id for node in recording.graph.nodes if node.kind in ("op", "output")])
    if len(recording.graph.nodes) > CARDS:
        raise ExpressionError(f"{len(recording.graph.nodes)} values are too many for a picture; {CARDS} are the limit, and what a loop repeats counts once")
    return recording


def finite(x: float) -> float | None:
    "JSON has no ∞ and no nan; the line and the picture say them."
    return x if math.isfinite(x) else None


def answer(text: str, inputs: dict, scope: str = "agown", forward_only: bool = False) -> dict:
    """All that a page shows of the expression `text` at `inputs`: `text` in Python's signs, `line`, `svg` with every step in it, and for each
    step a `caption` and the style that picks it. `error` if there is no picture; missing inputs begin at 1."""
    try:
        names = names_in(text)
        if len(names) > 4:
            raise ExpressionError(f"{len(names)} variables are too many for this page; 4 are the limit")
        if too_long := [name for name in names if len(name) > LETTERS]:
            raise ExpressionError(f"the name {too_long[0]!r} is too long for a slider; {LETTERS} letters are the limit")
        inputs = {name: float(inputs.get(name, 1.0)) for name in names or ["x"]}
        run = parse_function(text) if is_function(text) else parse_expression(text, inputs)
        recording = recorded(run, inputs)
    except Exception as error:
        return {"error": failure_words(error), "line": "", "names": names_in(text)}
    frames = Frames(recording, min_width=104)
    if forward_only:
        frames.frames = [frame for frame in frames.frames if frame.phase in ("start", "forward") and frame.title != "order()"]
    count, total = len(frames.frames), recording.timeline.steps
    return {
        "error": "",
        "line": result_words(recording.result, {} if forward_only else {name: recording.grads[name] for name in inputs}),
        "names": list(inputs),
        "text": text if is_function(text) else in_python(text),
        "result": finite(float(recording.result)),
        "grads": {name: finite(float(grad)) for name, grad in recording.grads.items()},
        "svg": frames.base,
        "styles": [frame_css(scope, frame.k, total) for frame in frames.frames],
        "captions": [caption_html(k, count, frame.phase, frame.title, frame.text) for k, frame in enumerate(frames.frames)],
        "css": css() + caption_css() + line_css(),
    }
