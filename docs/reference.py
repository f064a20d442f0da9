"""The reference as users ask for it: by the name they write, whichever notebook it lives in.

A page for each part of the package lists its public names with the first sentence of their documentation and a link to the full entry. All of it is read from the
imported package, so that a new name appears by itself; `GROUPS` only decides below which heading.
"""

import importlib
import inspect
import re
import sys
import types

from execute import ROOT

PACKAGE = "autograd_nb"

# page -> (title, what it is for, the modules it covers; "" is the package itself)
PAGES = {
    "torch": ("torch", "Tensors, and the functions that make and combine them.", [""]),
    "tensor": ("torch.Tensor", "The methods and attributes of a tensor.", []),
    "autograd": ("torch.autograd", "Gradients: asking for them, controlling what is recorded, teaching new ones, looking at the graph.",
                 ["autograd", "autograd.functional", "autograd.forward_ad", "autograd.graph", "autograd.profiler", "profiler"]),
    "func": ("torch.func", "Derivatives and batches as functions of functions, which compose freely.", ["func"]),
    "nn": ("torch.nn", "Modules: layers, losses, containers, and tools for their parameters.",
           ["nn", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.prune", "nn.attention", "nn.grad"]),
    "functional": ("torch.nn.functional", "Layers and losses as functions.", ["nn.functional"]),
    "optim": ("torch.optim", "Optimisers, learning-rate schedules and averages of weights.", ["optim", "optim.lr_scheduler", "optim.swa_utils"]),
    "linalg": ("torch.linalg", "Linear algebra.", ["linalg"]),
    "fft": ("torch.fft", "Fourier transforms.", ["fft"]),
    "special": ("torch.special", "Special functions.", ["special"]),
    "distributions": ("torch.distributions", "Probability distributions that can be differentiated through.",
                      ["distributions", "distributions.constraints", "distributions.transforms"]),
    "devices": ("torch.amp, cuda, cpu", "Mixed precision, devices, and how much memory is in use.", ["amp", "cuda", "cpu"]),
    "utils": ("torch.utils", "Data loading, checkpointing, the memory planner and captured steps.", ["utils.data", "utils.checkpoint", "utils.planner", "utils.capture"]),
    "seeing": ("viz and widgets", "What PyTorch does not have: graphs, tables, steppers, quizzes and checks.", ["viz", "widgets"]),
    "testing": ("torch.testing", "Comparing tensors in tests.", ["testing"]),
}

# Headings for functions of tensors. An operation goes where its notebook is; these are the names that are made of several operations.
GROUPS = {
    "Tensors, dtypes and questions about them": """Tensor Size Generator dtype device finfo iinfo memory_format is_tensor numel is_floating_point is_complex is_nonzero is_same_size is_signed
        is_inference is_conj is_neg isreal result_type can_cast promote_types typename save load is_storage layout
        default_generator size dim ndimension nelement element_size stride storage_offset dim_order sparse_dim dense_dim data_ptr get_device is_contiguous is_shared is_pinned is_set_to is_coalesced
        is_distributed type storage untyped_storage TypedStorage UntypedStorage""",
    "Gradients": "backward requires_grad retain_grad detach register_hook register_post_accumulate_grad_hook",
    "Conversion": """to item tolist numpy cpu cuda type_as contiguous bfloat16 bool byte cdouble cfloat chalf char double float half int long short dequantize to_dense share_memory pin_memory
        as_subclass BoolTensor ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor
        BFloat16Tensor CharTensor ShortTensor record_stream""",
    "Making tensors": """frombuffer from_file empty_strided meshgrid hann_window hamming_window blackman_window bartlett_window kaiser_window complex polar cartesian_prod combinations vander block_diag
        diagflat diag_embed fill range new new_empty new_empty_strided new_full new_ones new_tensor new_zeros""",
    "Random numbers": """poisson binomial bernoulli multinomial normal rand rand_like randn randn_like randint randint_like randperm manual_seed seed initial_seed get_rng_state
        set_rng_state dropout cauchy exponential geometric log_normal random uniform""",
    "What is recorded": """no_grad enable_grad set_grad_enabled inference_mode is_grad_enabled is_inference_mode_enabled autocast GradScaler vmap""",
    "Shape and order": """swapaxes swapdims moveaxis movedim concat concatenate flatten unflatten broadcast_to broadcast_tensors broadcast_shapes tile repeat_interleave vstack hstack dstack
        column_stack chunk tensor_split split_with_sizes hsplit vsplit dsplit ravel adjoint atleast_1d atleast_2d atleast_3d fliplr flipud rot90 constant_pad_nd
        view view_as reshape_as expand_as row_stack resize resize_as unsafe_chunk unsafe_split unsafe_split_with_sizes diagonal_copy expand_copy permute_copy select_copy split_copy
        squeeze_copy t_copy transpose_copy unbind_copy unsqueeze_copy view_copy""",
    "Indexing, gathering and sorting": """select narrow_copy diag take_along_dim index_select masked_select take index_add index_fill index_copy index_reduce put scatter_reduce select_scatter
        slice_scatter nonzero nonzero_static argwhere unravel_index sort topk msort kthvalue unique unique_consecutive bucketize searchsorted isin
        argsort scatter scatter_add masked_fill masked_scatter diagonal_scatter copy set fill_diagonal""",
    "Reductions and statistics": """max min aminmax norm count_nonzero trace bincount histc histogram histogramdd nansum nanmean nanmedian mode median quantile nanquantile cummax cummin diff gradient trapezoid trapz
        cumulative_trapezoid cov corrcoef dist cdist pdist pairwise_distance cosine_similarity renorm std_mean var_mean
        logcumsumexp cumsum cumprod""",
    "Settings": "get_default_dtype set_default_dtype set_printoptions get_num_threads set_num_threads get_device_module OutOfMemoryError",
    "Pointwise": "float_power ldexp frexp positive conj resolve_conj resolve_neg nan_to_num clip divide subtract true_divide apply map map2 zero rot",
    "Comparison": "equal isclose allclose eq ne lt le gt ge isnan isinf isfinite isposinf isneginf maximum minimum fmax fmin",
    "Matrices": """matmul outer ger addmv addr addbmm baddbmm einsum tensordot inner vdot kron chain_matmul cholesky_solve cholesky_inverse lu lu_solve lu_unpack logdet matrix_power inverse pinverse frobenius_norm nuclear_norm
        lobpcg""",
    "Signals": "stft istft",
}
NAMED = {name: group for group, names in GROUPS.items() for name in names.split()}
BY_HOME = {"creation": "Making tensors", "ops.shape": "Shape and order", "ops.windows": "Shape and order", "ops.ordering": "Indexing, gathering and sorting", "ops.scatter": "Indexing, gathering and sorting", "ops.fourier": "Signals", "ops.indexing": "Indexing, gathering and sorting", "ops.gathering": "Indexing, gathering and sorting", "ops.strided": "Indexing, gathering and sorting",
           "ops.reduce": "Reductions and statistics", "ops.pointwise": "Pointwise", "ops.special": "Pointwise", "special": "Pointwise", "ops.linalg": "Matrices", "linalg": "Matrices",
           "ops.decompositions": "Matrices", "ops.nn": "Layers and losses", "ops.convolution": "Layers and losses", "ops.pooling": "Layers and losses", "ops.resizing": "Layers and losses",
           "ops.normalisation": "Layers and losses", "nn.functional": "Layers and losses", "nn.spatial": "Layers and losses", "ops.training": "Layers and losses",
           "arrays.dtypes": "Tensors, dtypes and questions about them", "storage": "Tensors, dtypes and questions about them",
           "copies": "Shape and order", "functions.factorizations": "Matrices", "functions.scattering": "Indexing, gathering and sorting", "settings": "Settings",
           "refused": "Refused, with what to use instead", "amp.autocast_mode": "What is recorded", "autograd.anomaly_mode": "What is recorded"}
NN = {module: title for title, modules in {
    "The base class and containers": "modules.module modules.container modules.lazy parameter",
    "Layers": "modules.linear modules.flatten modules.dropout modules.sparse modules.distance modules.adaptive",
    "Images and other grids": "modules.conv modules.pooling modules.padding modules.upsampling modules.pixelshuffle modules.fold",
    "Normalisation": "modules.normalization modules.batchnorm modules.instancenorm",
    "Activations and attention": "modules.activation", "Recurrent layers": "modules.rnn", "Transformers": "modules.transformer",
    "Losses": "modules.loss modules.linear_cross_entropy", "Parallel": "parallel"}.items() for module in modules.split()}
# What has no documentation of its own where it is defined: attributes that are slots, and names that are one line each.
SAID = {name: told.strip() for name, told in (line.split(":", 1) for line in """
device: Where its data lies, such as `cpu` or `cuda:0`.
dtype: The kind of its numbers, such as `float32`.
grad: The gradient that `backward()` has added up here; `None` before the first.
grad_fn: The node of the graph that made it; `None` for a leaf.
H: A matrix, transposed and conjugated.
mT: Its last two dimensions swapped.
T: Its dimensions in reverse order; of a matrix, the transpose.
is_leaf: Whether no recorded operation made it, so that gradients end here.
is_cpu: Whether its data lies in the memory of the processor.
is_cuda: Whether its data lies on a GPU.
is_sparse: Whether it stores only what is not zero; never here.
is_quantized: Whether it stores whole numbers for rounded ones; never here.
is_nested: Whether it holds tensors of several shapes; never here.
is_meta: Whether it has a shape and no data; never here.
itemsize: The bytes of one element.
nbytes: The bytes of all its elements.
layout: How its elements are stored: always `strided`.
name: A name, which PyTorch keeps for old programs.
ndim: How many dimensions it has.
output_nr: Which result of its node it is, where that has several.
real: The real part, as a view.
requires_grad: Whether what is computed with it is recorded for gradients.
retains_grad: Whether `retain_grad()` was called, so that it keeps its gradient without being a leaf.
shape: Its size in each dimension.
data_ptr: The address of its first element.
dim: How many dimensions it has.
dim_order: Its dimensions from the outermost in memory to the innermost.
element_size: The bytes of one element.
get_device: The number of its GPU; -1 on the processor.
is_coalesced: Whether a sparse tensor names each place once.
is_distributed: Whether it is spread over several processes.
is_inference: Whether it was made under `inference_mode()`.
is_set_to: Whether both look at the same memory in the same way.
ndimension: How many dimensions it has.
dense_dim: How many of its dimensions are dense: all.
nelement: How many elements it has.
numel: How many elements it has.
size: Its size in each dimension, or in the one that is asked for.
sparse_dim: How many of its dimensions are sparse: none.
storage_offset: How many elements of its storage come before its first.
stride: How many elements further the next one lies, for each dimension or for one.
as_subclass: The same tensor as an instance of a subclass of `Tensor`.
dequantize: The tensor itself: none is quantized here.
to_dense: The tensor itself: all are dense here.
type_as: Converted to the dtype and device of another tensor.
new: An empty tensor of the same dtype, or one from data (an old name).
new_empty: A tensor of this size with the same dtype and device, its elements not set.
new_empty_strided: A tensor of this size and these strides with the same dtype and device, its elements not set.
new_full: A tensor of this size filled with one value, with the same dtype and device.
new_ones: A tensor of ones of this size, with the same dtype and device.
new_tensor: A tensor from data, with the same dtype and device.
new_zeros: A tensor of zeros of this size, with the same dtype and device.
resize_as_: Changes its size, in place, to that of another tensor.
set_: Makes it look at the memory of another tensor.
conj: The complex conjugate.
map_: Writes `f(own element, other element)` into each element, one by one.
where: Its own elements where a condition holds, another's elsewhere.
dependent: The set that a parameter lies in when that depends on other parameters.
dependent_property: A property that gives the set of values of a distribution, where that depends on its parameters.
greater_than: The numbers above a bound.
greater_than_eq: The numbers from a bound upwards, the bound included.
half_open_interval: The numbers from a lower bound up to an upper one, the upper left out.
integer_interval: The whole numbers between two bounds, both included.
interval: The numbers between two bounds, both included.
less_than: The numbers below a bound.
multinomial: Vectors of counts that add up to at most a number of draws.
variable: Raises and names `torch.tensor`, which has taken its place.
""".strip().splitlines())}
SAID |= {f"is_{name}": f"Whether it lies on {what}; never here." for name, what in (
    ("ipu", "an IPU"), ("maia", "a Maia accelerator"), ("mps", "an Apple GPU"), ("mtia", "an MTIA accelerator"), ("vulkan", "a Vulkan device"), ("xla", "an XLA device"), ("xpu", "an Intel GPU"))}
SAID |= {"is_mkldnn": "Whether it has the layout of MKL-DNN; never here.", "is_sparse_csr": "Whether it stores only what is not zero, row by row; never here."}
KINDS = {"bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "cdouble": "complex128", "cfloat": "complex64", "chalf": "complex64", "char": "int8", "double": "float64",
         "float": "float32", "half": "float16", "int": "int32", "long": "int64", "short": "int16"}
SAID |= {name: f"Converted to `{kind}`." for name, kind in KINDS.items()}
SAID |= {f"{'BFloat16' if name == 'bfloat16' else name.title()}Tensor": f"Makes a `{kind}` tensor from data or of a size (an old name for `tensor` and `empty`)." for name, kind in KINDS.items()}
ATTRIBUTES = "Attributes"
REST = "Further"


def module(name: str):
    return importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)


def home(thing) -> str:
    "The module that defines `thing`, below the package; '' if it does not tell."
    where = getattr(inspect.unwrap(thing) if callable(thing) else thing, "__module__", None) or ""
    return where.removeprefix(PACKAGE + ".") if isinstance(where, str) and where.startswith(PACKAGE) else ""


def heading_of(headings: dict, where: str) -> str | None:
    "The heading of a module: its own, or that of the front door above it."
    while where and where not in headings:
        where = where.rpartition(".")[0]
    return headings.get(where)


def sentence(thing) -> str:
    "The first sentence of its documentation, for a cell of a table."
    text = inspect.getdoc(thing) if callable(thing) or isinstance(thing, property) else ""
    if isinstance(thing, type) and not thing.__doc__ or not text:
        return ""
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", " ".join(text.split("\n\n")[0].split()))[0]
    return first.replace("|", "\\|").replace("<", "&lt;") if first.count("`") % 2 == 0 else ""


def public(name: str) -> dict:
    "The functions and classes a module offers: name -> object."
    part = module(name)
    names = set(part.__all__)
    if name == "nn.functional":  # it offers some that are defined next to it
        names |= {n for n in dir(part) if not isinstance(getattr(part, n), type) and home(getattr(part, n)).startswith(("nn.", "ops."))}
    found = {n: getattr(part, n) for n in sorted(names, key=lambda n: (n.lower(), n)) if not n.startswith("_")}
    return {n: thing for n, thing in found.items() if callable(thing) and not isinstance(thing, types.ModuleType)}


class Reference:
    "`documented`: the full dotted names that have an entry somewhere on the site."

    def __init__(self, documented: set[str]):
        self.documented = documented
        sys.path.insert(0, str(ROOT))
        self.torch = module("")
        self.tensor = self.torch.Tensor
        self.registry = importlib.import_module(f"{PACKAGE}.graph.op").REGISTRY
        self.count = 0

    def target(self, name: str, thing) -> str | None:
        "Where `thing` has its entry."
        where = f"{PACKAGE}.{home(thing)}"
        return next((full for full in (f"{where}.{getattr(thing, '__qualname__', '')}", f"{where}.{getattr(thing, '__name__', '')}", f"{where}.{name}") if full in self.documented), None)

    def rows(self, things: dict, inside: str = "") -> str:
        lines = ["| name | what it is |", "|---|---|"]
        for name, thing in things.items():
            self.count += 1
            target = self.target(name, thing) or (f"{inside}.{name}" if f"{inside}.{name}" in self.documented else None)
            shown = f"{{py:obj}}`{name} <{target}>`" if target else f"`{name}`"
            lines.append(f"| {shown} | {sentence(thing) or SAID.get(name, '')} |")
        return "\n".join(["{.names}", *lines, ""])

    def group(self, name: str, thing) -> str:
        "The heading for a function of tensors."
        plain = name.rstrip("_")
        op = self.registry.get(name) or self.registry.get(plain)
        return NAMED.get(name) or NAMED.get(plain) or heading_of(BY_HOME, home(thing)) or (heading_of(BY_HOME, home(op)) if op else None) or REST

    def grouped(self, things: dict, group, order, inside: str = "") -> str:
        parts: dict[str, dict] = {}
        for name, thing in things.items():
            parts.setdefault(group(name, thing), {})[name] = thing
        ordered = sorted(parts, key=lambda title: (order.index(title) if title in order else len(order), title))
        return "\n".join(f"## {title}\n\n{self.rows(parts[title], inside)}" for title in ordered)

    def functions(self, things: dict, inside: str = "") -> str:
        "Functions of tensors by heading; twins that work in place are named at the end."
        twins = [n for n in things if n.endswith("_") and n[:-1] in things]
        rest = {n: thing for n, thing in things.items() if n not in twins}
        order = [ATTRIBUTES, *GROUPS, "Layers and losses"]
        text = self.grouped(rest, lambda n, t: ATTRIBUTES if not callable(t) else self.group(n, t), order, inside)
        if twins:
            self.count += len(twins)
            text += "\n## In place\n\nThe same, written into the tensor itself:\n\n" + ", ".join(f"`{n}`" for n in twins) + ".\n"
        return text

    def page(self, name: str) -> tuple[str, int]:
        "The text of a page, and how many names it lists."
        self.count = 0
        title, what, parts = PAGES[name]
        text = f"# {title}\n\n{what}\n\n"
        if name == "tensor":
            members = {n: inspect.getattr_static(self.tensor, n) for n in sorted(dir(self.tensor), key=str.lower) if not n.startswith("_")}
            members = {n: getattr(self.tensor, n) if callable(getattr(self.tensor, n)) else m for n, m in members.items()}
            text += self.functions(members, f"{PACKAGE}.tensor.Tensor")
        elif name == "torch":
            text += self.functions(public(""))
        for part in parts if name != "torch" else ():
            things = public(part)
            if part == "nn":
                text += self.grouped(things, lambda n, t: heading_of(NN, home(t).removeprefix("nn.")) or REST, list(dict.fromkeys(NN.values())))
            else:
                heading = part if name in ("seeing",) else f"torch.{part}"
                text += (f"## {heading}\n\n" if len(parts) > 1 else "") + self.rows(things) + "\n"
        return text, self.count

    def pages(self) -> dict[str, str]:
        "All pages: document name -> text; the front page among them."
        texts, rows = {}, []
        for name, (title, what, _) in PAGES.items():
            text, count = self.page(name)
            texts[f"reference/{name}"] = text
            rows.append(f"| [{title}](/reference/{name}.md) | {what} | {count} |")
        texts["reference/index"] = FRONT.format(rows="\n".join(rows), pages="\n".join(f"/reference/{name}" for name in PAGES))
        return texts


FRONT = """# Reference

Every public name, as you write it after `import autograd_nb as torch`. A name links to its full entry: signature, shapes, errors, and the source beside the reasons for it.

| part | for what | names |
|---|---|---|
{rows}

On paper and from memory: the [cheat sheet](/cheatsheet.md) (one page). With derivatives: the [table of operations](/ops/99_table.ipynb). By letter: the {{ref}}`index <genindex>`.
In doubt about a word: the [glossary](/glossary.md). Names and behaviour are PyTorch's, and so is most of its documentation's advice.

```{{toctree}}
:hidden:

{pages}
```
"""
