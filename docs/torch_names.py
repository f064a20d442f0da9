"""The public names of PyTorch, stored, so that the page 'From PyTorch to here' can say which of them are missing without PyTorch installed.

    python docs/torch_names.py --write     collect them anew (PyTorch must be installed)
"""

import argparse
import importlib
import json
import re
import sys
import types
from pathlib import Path

# Missing names by area: a pattern, and what to do without them. The first that fits decides.
AREAS = {
    "Compiling, tracing and exporting": (
        r"jit|JIT\w*|fx|export|onnx|compiler|cpp|library|package|classes|Script\w*|fork|wait|futures|parse_\w+|import_ir\w*|merge_type\w*|unify_type\w*|cond"
        r"|while_loop|sym_\w+|Sym\w+|\w*graph\w*|CUDAGraph|is_current_stream_capturing|jiterator|rearrange|torch_version|functional|types|return_types|version"
        r"|compiled_with\w*|classproperty|quasirandom|signal|windows|monitor|common_types|factory_kwargs|map2_|module_load|swap_in\w*|guaranteed_\w+"
        r"|init_num_threads|get_file_path",
        "Python runs your program as it stands; nothing is translated.",
    ),
    "Sparse tensors": (
        r"\w*sparse\w*|SparseAdam|\w*_?indices(_copy)?|values(_copy)?|coalesce|dense_dim|hspmm|hsmm|dsmm|saddmm|smm|spmm|sspaddmm|segment_reduce",
        "Dense tensors, index_add, scatter_add and embedding do the same work.",
    ),
    "Quantised and very narrow numbers": (
        r"q_\w+|Q\w+Storage|qu?int\w+|u?int[1-7]|bits?\w*|quant\w+|per_\w+|qscheme|qat|intrinsic|ao|fbgemm_\w+|fake_quantize\w*|fused_moving_avg\w*"
        r"|choose_qparams\w*|dequantize|int_repr|empty_quantized|float8_\w+|float4_\w+|complex32|chalf|scaled_mm|scaled_grouped_mm|grouped_mm",
        "float16, bfloat16 and float32 are the narrowest.",
    ),
    "Other hardware": (
        r"mps|xpu|mtia|ipu|xla|volatile|\w*vulkan\w*|miopen_\w+|cudnn_\w+|mkldnn_\w+|to_mkldnn|\w*(ipu|xla)\w*|Stream|Event|get_device_module|get_device"
        r"|AcceleratorError|OutOfMemoryError|FatalError|convert_conv\w*|legacy_contiguous_format",
        "The processor by NumPy, and NVIDIA cards by CuPy.",
    ),
    "Many machines": (
        r"prepare_multi\w*|\w*distributed|multiprocessing|nccl|AVG|SUM",
        "Data-parallel training over MPI and NCCL is here (distributed, nn.parallel); models split over machines are not.",
    ),
    "Memory by hand": (
        r"\w*[Ss]torage\w*|storage_type|const_data_ptr|empty_strided|empty_permuted|from_file|as_strided_|\w+_copy|caching_allocator\w*|\w*[Aa]llocator\w*"
        r"|Mem[Pp]ool|\w*mem_?pool|memory\w*|\w*memory_(stats|cached|used)\w*|cudart|cudaStatus|CudaError|check_error|current_\w+_handle|hash_tensor|to_dlpack",
        "A tensor is a NumPy or CuPy array: x.numpy(), DLPack and slices reach its memory.",
    ),
    "Looking at the card": (
        r"clock_rate|power_draw|temperature|utilization|list_gpu_processes|nvtx|profiler|tunable|GreenContext|\w*sync_debug_mode|get_arch_list|get_gencode_flags"
        r"|get_per_process\w*|ExternalStream|get_stream_from_external|streams|random|\w*rng_state\w*|is_tf32_supported|DeferredCudaCallError|\w+Tensor",
        "nvidia-smi, and CuPy itself, for what is not here.",
    ),
    "Nested and masked tensors, overrides": (
        r"nested|masked|jagged|to_padded_tensor|overrides|\w*[Tt]orch_?[Ff]unction\w*|thread_safe_generator|layout",
        "Pad, and use masks.",
    ),
    "Kernels below the public functions": (
        r"batch_norm_\w+|native_\w+|grid_sampler_\w+|gru|lstm|rnn_\w+|embedding_renorm_|histogramdd|slice_inverse|assert_int_or_pair|conv_tbc|CrossMapLRN2d|ormqr"
        r"|geqrf|pca_lowrank|svd_lowrank|index|Tensor|grad",
        "Call the public function: nn.BatchNorm2d, nn.LSTM, F.grid_sample, linalg.qr.",
    ),
    "Removed from PyTorch too": (
        r"eig|lstsq|matrix_rank|solve|symeig|resize|resize_as|reinforce|Container|is_storage|quantizable",
        "torch.linalg has their successors.",
    ),
    "Bessel and Airy functions": (
        r"\w*bessel\w+|airy_ai",
        "scipy.special has the values; for a gradient, write an autograd.Function.",
    ),
    "Data pipes": (
        r"\w*DataPipe|DataChunk|_DatasetKind|argument_validation|functional_datapipe|non_deterministic|runtime_validation\w*",
        "Dataset, IterableDataset and DataLoader.",
    ),
    "Rarer distributions": (
        r"[A-Z]\w+|biject_to|transform_to",
        "Normal, Bernoulli, Categorical, Uniform, Gamma, Beta, Dirichlet, Poisson and their relatives are here; a Transform makes others.",
    ),
}
STORE = Path(__file__).with_suffix(".json")
PLACES = ("torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler", "torch.autograd", "torch.autograd.functional", "torch.autograd.forward_ad",
          "torch.func", "torch.linalg", "torch.fft", "torch.special", "torch.amp", "torch.utils.data", "torch.utils.checkpoint", "torch.distributions", "torch.cuda")


def found(place: str, library: str):
    "The module or class at `place` of the library of that name, or None."
    path = place.split(".")[1:]
    here = importlib.import_module(library)
    for i, name in enumerate(path):
        if not hasattr(here, name):
            try:
                importlib.import_module(".".join([library, *path[: i + 1]]))
            except ImportError:
                return None
        here = getattr(here, name, None)
        if here is None:
            return None
    return here


def counts(home, name: str) -> bool:
    "Whether a name is PyTorch's own and meant for users: neither an import from elsewhere nor a type of its C++ parts."
    thing = getattr(home, name, None)
    if isinstance(thing, types.ModuleType):
        return thing.__name__.startswith("torch.")
    if isinstance(thing, (bool, tuple, list, dict, str, int)) or type(thing).__name__ in ("pybind11_type", "_Classes", "_lru_cache_wrapper"):
        return False
    module = getattr(thing, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "") and not module.startswith(("torch._utils_internal", "torch._jit_internal", "torch.overrides", "torch.types"))


def public(home) -> list[str]:
    "The public names of a module or class."
    names = {n for n in dir(home) if not n.startswith("_")}
    declared = getattr(home, "__all__", None)
    if isinstance(home, types.ModuleType) and declared and home.__name__ != "torch":
        names = {n for n in declared if hasattr(home, n)}
    return sorted(n for n in names if isinstance(home, type) or counts(home, n))


def collected() -> dict:
    "PyTorch's version and, by place, its public names."
    import torch

    return {"torch": torch.__version__, "names": {place: public(found(place, "torch")) for place in PLACES}}


def stored() -> dict:
    return json.loads(STORE.read_text(encoding="utf-8"))


def missing(library: str = "autograd_nb") -> dict[str, list[str]]:
    "By place, the names that the library lacks."
    out = {}
    for place, names in stored()["names"].items():
        here = found(place, library)
        out[place] = [n for n in names if here is None or not hasattr(here, n)]
    return out


def area_of(place: str, name: str) -> str:
    "The area of a missing name; 'Other names' if it fits nowhere."
    for title, (pattern, _) in AREAS.items():
        if (title == "Rarer distributions") == (place == "torch.distributions") and re.fullmatch(pattern, name):
            return title
    return "Other names"


def by_area(library: str = "autograd_nb") -> dict[str, tuple[str, list[str]]]:
    "Area -> what to do, and the missing names in it."
    out = {title: (why, []) for title, (_, why) in AREAS.items()} | {"Other names": ("Not here yet.", [])}
    for place, names in missing(library).items():
        for name in names:
            out[area_of(place, name)][1].append(name if place == "torch" else f"{place.removeprefix('torch.')}.{name}")
    return {title: found for title, found in out.items() if found[1]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="collect PyTorch's names")
    if parser.parse_args().write:
        STORE.write_text(json.dumps(collected(), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    sys.path.insert(0, str(STORE.parent.parent))
    for place, names in missing().items():
        print(f"{place}: {len(names)} missing\n  {' '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
