"""Small programs that go wrong, and what PyTorch and autograd_nb say about each of them.

    python docs/mistakes.py            print the page
    python docs/mistakes.py --write    run every program under PyTorch and store its messages in docs/mistakes.json

Each mistake is one entry of `MISTAKES`: a program, in which `#!` marks the lines that are to blame, and what a message that helps would reveal. The messages of autograd_nb on the page are
those of the present moment; PyTorch's come from the file, so that the page can be built where PyTorch is not installed.
"""

import argparse
import json
import linecache
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Mistake:
    "`culprits`: numbers of the lines marked `#!`. `ops`: operations, tensors or values that a helpful message names. `remedy`: a pattern that what to write instead matches."

    title: str
    source: str
    ops: tuple
    remedy: str

    @property
    def program(self) -> str:
        "The program without marks."
        return re.sub(r" *#!$", "", self.source, flags=re.M)

    @property
    def culprits(self) -> list[int]:
        return [number for number, line in enumerate(self.source.splitlines(), 1) if line.endswith("#!")]


MISTAKES: list[Mistake] = []


def mistake(title: str, source: str, ops: str, remedy: str):
    MISTAKES.append(Mistake(title, source.strip("\n"), tuple(ops.split()), remedy))


# In-place writes ------------------------------------------------------------------------------------------------

mistake("A saved result is overwritten", """
x = torch.tensor([1., 2.], requires_grad=True)
y = x.exp()  #!
y += 1  #!
y.sum().backward()
""", "ExpBackward0|Exp add_", r"y = y \+ 1")

mistake("A saved input is overwritten", """
x = torch.ones(3, requires_grad=True)
h = x * 2
z = h ** 2  #!
h.zero_()  #!
z.sum().backward()
""", "PowBackward0 zero_", r"clone\(\)|out of place")

mistake("A value is overwritten through a view", """
x = torch.rand(2, 3, requires_grad=True)
h = x.sigmoid()  #!
first = h[0]
first[0] = 7.  #!
h.sum().backward()
""", "SigmoidBackward0|Sigmoid copy_", r"clone\(\)")

mistake("In-place activation on a value that is still needed", """
x = torch.randn(4, requires_grad=True)
h = x.tanh()  #!
out = torch.nn.functional.relu(h, inplace=True)  #!
out.sum().backward()
""", "TanhBackward0|Tanh relu_", r"inplace=False")

mistake("The optimiser steps between two backward passes", """
w = torch.ones(2, 2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
x = torch.ones(1, 2, requires_grad=True)
loss = (x @ w).sum()  #!
loss.backward(retain_graph=True)
opt.step()  #!
loss.backward()
""", "MmBackward0", r"before .*step\(\)|forward pass again")

mistake("A parameter is updated outside no_grad", """
w = torch.tensor([1., 2.], requires_grad=True)  #!
(w ** 2).sum().backward()
w -= 0.1 * w.grad
""", "w sub_", r"with torch\.no_grad\(\)")

mistake("A view of a parameter is updated outside no_grad", """
w = torch.zeros(3, requires_grad=True)  #!
w[0] = 1.
""", "w copy_", r"with torch\.no_grad\(\)")

mistake("An in-place result does not fit", """
a = torch.zeros(1, 3)
b = torch.zeros(2, 3)
a += b
""", "a", r"a = a \+ b")

mistake("A fraction is added to integers in place", """
n = torch.tensor([1, 2, 3])
n += 0.5
""", "n", r"n = n \+ 0\.5|\.float\(\)")

mistake("A slice returned by unbind is changed in place", """
x = torch.ones(2, 2, requires_grad=True)
a, b = (x * 2).unbind(0)  #!
a += 1
""", "Unbind|UnbindBackward0", r"a = a \+ 1|out-of-place")

mistake("An expanded tensor is written to", """
x = torch.zeros(1, 3).expand(2, 3)
x += 1
""", "x", r"clone\(\)")

# Graphs that are not there --------------------------------------------------------------------------------------

mistake("Nothing requires grad", """
w = torch.tensor([1., 2.])  #!
loss = (w ** 2).sum()
loss.backward()
""", "loss w", r"requires_grad=True")

mistake("detach() on the way to the loss", """
w = torch.tensor([1., 2.], requires_grad=True)
h = (w * 3).detach()  #!
loss = h.sum()
loss.backward()
""", "loss h detach()", r"[Ll]eave .*detach\(\)|without detach")

mistake("The loss is computed under no_grad", """
w = torch.tensor([1., 2.], requires_grad=True)
with torch.no_grad():  #!
    loss = (w ** 2).sum()  #!
loss.backward()
""", "loss no_grad", r"outside|out of the with block")

mistake("The loss is rebuilt from a number", """
w = torch.tensor([1., 2.], requires_grad=True)
value = (w ** 2).sum().item()
loss = torch.tensor(value)  #!
loss.backward()
""", "loss torch.tensor", r"keep the tensor|stack")

mistake("The loss counts correct answers", """
scores = torch.rand(4, 3, requires_grad=True)
wrong = (scores.argmax(1) != torch.tensor([0, 1, 2, 0])).float()  #!
loss = wrong.mean()
loss.backward()
""", "loss wrong argmax", r"derivative|smooth|cross_entropy")

mistake("A round trip through NumPy", """
w = torch.tensor([1., 2.], requires_grad=True)
h = torch.from_numpy(w.detach().numpy() ** 2)  #!
loss = h.sum()
loss.backward()
""", "loss h", r"torch's own|without NumPy|operations of torch")

mistake("grad() with respect to a tensor that is not recorded", """
x = torch.tensor(2.)  #!
w = torch.tensor(3., requires_grad=True)
torch.autograd.grad(w * x, x)
""", "x", r"requires_grad=True|requires_grad_\(\)")

mistake("grad() with respect to an unused input", """
a = torch.tensor(1., requires_grad=True)
b = torch.tensor(2., requires_grad=True)  #!
loss = a ** 2
torch.autograd.grad(loss, [a, b])
""", "b", r"allow_unused=True")

mistake("grad() with respect to a new version of a variable", """
x = torch.tensor(2., requires_grad=True)
y = x ** 2
x = x * 1.  #!
torch.autograd.grad(y, x)
""", "x MulBackward0", r"allow_unused=True")

mistake("A second backward", """
x = torch.tensor([1., 2.], requires_grad=True)
loss = (x ** 2).sum()  #!
loss.backward()
loss.backward()
""", "PowBackward0", r"retain_graph=True")

mistake("Two losses share a part that the first backward freed", """
x = torch.tensor([1., 2.], requires_grad=True)
h = x.exp()  #!
a, b = h.sum(), (h * 2).sum()
a.backward()
b.backward()
""", "ExpBackward0", r"\(a \+ b\)\.backward\(\)|add the losses|retain_graph=True")

mistake("A hidden state carries the last batch's graph along", """
w = torch.tensor(0.5, requires_grad=True)
h = torch.tensor(1.)
for step in range(2):
    h = torch.tanh(w * h)  #!
    (h ** 2).backward()
""", "TanhBackward0", r"h = h\.detach\(\)")

mistake("backward() on many numbers", """
x = torch.tensor([1., 2., 3.], requires_grad=True)
loss = (x - 1) ** 2  #!
loss.backward()
""", "loss PowBackward0", r"\.mean\(\)|\.sum\(\)")

mistake("A starting gradient of the wrong shape", """
x = torch.ones(3, requires_grad=True)
y = x * 2  #!
y.backward(torch.ones(2))
""", "y MulBackward0", r"ones_like\(y\)")

mistake("An inference tensor enters training", """
w = torch.tensor([1., 2.], requires_grad=True)
with torch.inference_mode():
    features = torch.ones(2) * 2  #!
loss = (w * features).sum()
loss.backward()
""", "features mul|MulBackward0", r"no_grad\(\)")

mistake("An inference tensor is changed in place", """
with torch.inference_mode():
    running = torch.zeros(2)  #!
running += 1
""", "running", r"clone\(\)|no_grad\(\)")

mistake("Gradients of integers", """
n = torch.tensor([1, 2, 3])  #!
n.requires_grad_()
""", "n int64", r"n\.float\(\)|dtype=torch\.float32")

mistake("Integers made with requires_grad", """
n = torch.tensor([1, 2, 3], requires_grad=True)
""", "int64", r"dtype=torch\.float32")

mistake("Freezing a computed tensor", """
x = torch.ones(2, requires_grad=True)
h = x * 2  #!
h.requires_grad = False
""", "h MulBackward0", r"\.detach\(\)")

mistake("retain_grad() where there is no gradient", """
x = torch.ones(2)  #!
h = x * 2
h.retain_grad()
""", "h", r"requires_grad=True|requires_grad_\(\)")

mistake("A hook where no gradient will come", """
x = torch.ones(2)
x.register_hook(print)
""", "x", r"requires_grad=True|requires_grad_\(\)")

# Leaving the library --------------------------------------------------------------------------------------------

mistake("numpy() of a tensor that requires grad", """
w = torch.ones(2, requires_grad=True)
h = w * 2  #!
h.numpy()
""", "h MulBackward0", r"detach\(\)\.numpy\(\)")

mistake("item() of many numbers", """
x = torch.rand(3)
losses = x * 2
losses.item()
""", "losses", r"\.tolist\(\)|\.mean\(\)")

mistake("if on many numbers", """
x = torch.tensor([1., -1.])
if x > 0:
    print('positive')
""", "2", r"\.any\(\)|\.all\(\)|torch\.where")

mistake("A copy of a computed tensor", """
import copy
w = torch.ones(2, requires_grad=True)
h = w * 2  #!
copy.deepcopy(h)
""", "h MulBackward0", r"\.detach\(\)|\.clone\(\)")

# Shapes ---------------------------------------------------------------------------------------------------------

mistake("A matrix product with axes the wrong way round", """
w = torch.rand(5, 3, requires_grad=True)  #!
x = torch.rand(10, 3)
h = x.relu()
y = h @ w
""", "h w", r"h @ w\.T|w\.T")

mistake("A layer fed with the wrong number of features", """
images = torch.rand(8, 1, 4, 4)
layer = torch.nn.Linear(16, 10)  #!
scores = layer(images)
""", "16", r"flatten")

mistake("Sizes that do not broadcast", """
w = torch.rand(4, requires_grad=True)  #!
x = torch.rand(4, 3)
y = x * w
""", "x w", r"w\.unsqueeze\(1\)|w\[:, None\]")

mistake("Pieces that cannot be joined", """
w = torch.rand(2, 3, requires_grad=True)
a = w * 2  #!
b = torch.rand(2, 4)
torch.cat([a, b])
""", "a b", r"dim=1")

mistake("Layers of a stack differ in shape", """
a = torch.rand(2)
b = torch.rand(3)
torch.stack([a, b])
""", "a b", r"same shape|pad")

mistake("A shape with the wrong number of elements", """
x = torch.rand(2, 6, requires_grad=True)
h = x * 2  #!
h.view(5, -1)
""", "h MulBackward0", r"12")

mistake("view() of a transposed tensor", """
x = torch.rand(2, 3)
xt = x.T
xt.view(6)
""", "xt", r"reshape\(|contiguous\(\)")

mistake("A dimension that is not there", """
x = torch.rand(2, 3)
x.sum(dim=2)
""", "x 2-D|dimensions", r"dim=1|dim=-1|last")

mistake("expand() of a dimension that is not 1", """
x = torch.rand(3)
x.expand(2, 4)
""", "x", r"unsqueeze|repeat")

mistake("A wrong number of values to assign", """
x = torch.zeros(4)
x[1:3] = torch.ones(3)
""", "x", r"\[1:3\]|2 element|shape \[2\]")

# Numbers of the wrong kind ----------------------------------------------------------------------------------------

mistake("A product of two dtypes", """
x = torch.rand(2, 2, dtype=torch.float64)  #!
w = torch.rand(2, 2)
x @ w
""", "x w float64 float32", r"\.to\(|\.float\(\)|\.double\(\)")

mistake("NumPy's doubles meet a layer's floats", """
import numpy as np
x = torch.from_numpy(np.ones((1, 2)))  #!
torch.nn.Linear(2, 1)(x)
""", "x", r"\.float\(\)|\.to\(")

mistake("Class numbers given as floats", """
scores = torch.rand(2, 3)
target = torch.tensor([0., 2.])  #!
torch.nn.functional.cross_entropy(scores, target)
""", "target", r"\.long\(\)|dtype=torch\.int64")

mistake("Indices given as floats", """
x = torch.rand(3)
i = torch.tensor([0., 1.])  #!
x[i]
""", "i", r"\.long\(\)")

mistake("The mean of integers", """
n = torch.tensor([1, 2, 4])  #!
n.mean()
""", "n", r"\.float\(\)|dtype=torch\.float32")

mistake("Subtracting masks", """
mask = torch.tensor([True, False])
1 - mask
""", "mask", r"~|logical_not")

mistake("A NumPy array where a tensor belongs", """
import numpy as np
torch.exp(np.ones(2))
""", "ndarray", r"torch\.from_numpy|torch\.tensor|as_tensor")

# Places ---------------------------------------------------------------------------------------------------------

mistake("An index out of range", """
x = torch.rand(3)
row = x * 2
row[3]
""", "row 3", r"-1|last")

mistake("A class number too large", """
scores = torch.rand(2, 3)
target = torch.tensor([0, 3])  #!
torch.nn.functional.cross_entropy(scores, target)
""", "3", r"0 to 2|0 \.\. 2|0\.\.2")

mistake("A word outside the vocabulary", """
embed = torch.nn.Embedding(10, 4)  #!
words = torch.tensor([3, 10])
embed(words)
""", "10", r"0 to 9|num_embeddings")

mistake("A GPU that is not there", """
x = torch.ones(2).to("cuda")
""", "cuda", r"is_available\(\)")

mistake("A misspelt device", """
x = torch.ones(2, device="gpu")
""", "gpu", r'device="cuda"|"cuda"|"cpu"')


# Running them -----------------------------------------------------------------------------------------------------


def message(library, mistake: Mistake) -> tuple[str, str]:
    "Type and text of the error that the program raises with `library` as `torch`."
    name = "mistake.py"
    text = mistake.program + "\n"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    library.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, name, "exec"), {"torch": library, "__name__": "__main__", "__file__": name})
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        linecache.cache.pop(name, None)
    return "nothing", "No error: the program runs through."


def reveals(mistake: Mistake, text: str) -> dict[str, bool]:
    "What a message tells: the lines to blame, what went wrong there by name, and what to write instead. A mistake without marked lines has happened where the traceback ends."

    def named(word: str) -> bool:
        return any(re.search(rf"(?<!\w){re.escape(w)}(?!\w)" if w.isidentifier() else re.escape(w), text) for w in word.split("|"))

    return {"line": all(f"mistake.py:{n}" in text for n in mistake.culprits), "name": all(map(named, mistake.ops)), "remedy": bool(re.search(mistake.remedy, text))}


# What PyTorch says, and the page ----------------------------------------------------------------------------------


def stored() -> dict:
    "PyTorch's messages as they were when they were last collected: `torch` (the version) and `messages`: title -> program, type, text."
    return json.loads(STORE.read_text(encoding="utf-8"))


def collected(torch) -> dict:
    "The same, collected now."
    rows = {}
    for mistake in MISTAKES:
        kind, text = message(torch, mistake)
        rows[mistake.title] = {"program": mistake.program, "type": kind, "text": text}
    return {"torch": torch.__version__, "messages": rows}


def slug(title: str) -> str:
    return "mistake-" + re.sub(r"[\W_]+", "-", title.lower()).strip("-")


def fenced(text: str, language: str = "text", options: str = "") -> str:
    return f"```{{code-block}} {language}\n{options}\n{text}\n```\n"


INTRODUCTION = """# Mistakes, and what the messages reveal

{number} small programs that go wrong, each run under PyTorch {version} and under autograd_nb. A message helps when it says three things: on which *line* the cause lies (the traceback
ends where the trouble came to light, which is often another line), what it was, by *name* (the operation, the variable, the number), and what to write instead, the *remedy*.
The ticks below are set by a program that looks for these facts in the messages; the tests hold autograd_nb to every one of them.

{totals}

In a notebook, an error of a backward pass also shows the way from the loss to the node that failed, as a picture. The lines are known because every node notes where it was made; what that costs is measured by
`benchmarks/source_lines.py`.
"""


def page(library) -> str:
    "The whole page as Markdown. `library`: autograd_nb."
    store = stored()
    rows, sections, counts = [], [], {"torch": [0, 0, 0], "ours": [0, 0, 0]}
    for mistake in MISTAKES:
        theirs = store["messages"][mistake.title]
        kind, text = message(library, mistake)
        told = {"torch": reveals(mistake, theirs["text"]), "ours": reveals(mistake, text)}
        marks = []
        for who in ("torch", "ours"):
            for k, fact in enumerate(("line", "name", "remedy")):
                known = told[who][fact] and (fact != "line" or bool(mistake.culprits))
                counts[who][k] += known
                marks.append("✓" if known else "(here)" if fact == "line" and not mistake.culprits else "no")
        rows.append(f"| [{mistake.title}](#{slug(mistake.title)}) | " + " | ".join(marks) + " |")
        blame = f":emphasize-lines: {','.join(map(str, mistake.culprits))}\n" if mistake.culprits else ""
        sections.append(f"({slug(mistake.title)})=\n### {mistake.title}\n\n" + fenced(mistake.program, "python", ":linenos:\n" + blame)
                        + "\nPyTorch:\n\n" + fenced(f"{theirs['type']}: {theirs['text']}", options=":class: wrapped\n") + "\nautograd_nb:\n\n" + fenced(f"{kind}: {text}", options=":class: wrapped\n"))
    lines = sum(bool(m.culprits) for m in MISTAKES)
    head = "| | line | name | remedy |\n|---|---|---|---|\n"
    totals = head + "".join(f"| {name} | {c[0]} of {lines} | {c[1]} of {len(MISTAKES)} | {c[2]} of {len(MISTAKES)} |\n"
                            for name, c in (("PyTorch", counts["torch"]), ("autograd_nb", counts["ours"])))
    table = ("| mistake | PyTorch: line | name | remedy | autograd_nb: line | name | remedy |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows)
             + "\n\n*(here)*: the cause is on the line where the traceback ends.\n")
    return "\n".join([INTRODUCTION.format(number=len(MISTAKES), version=store["torch"].partition("+")[0], totals=totals), "## All at a glance\n", table, "## One by one\n", *sections])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="collect PyTorch's messages")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.write:
        import torch

        STORE.write_text(json.dumps(collected(torch), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    import autograd_nb

    print(page(autograd_nb))
    return 0


if __name__ == "__main__":
    sys.exit(main())
