"""Types: which of them CUDA has a kernel for, and what becomes of numbers that they cannot hold."""

import torch
from torch.nn import functional as F

from tests.cpu_graph.conformance.common import captured, captured_with, ones
from tests.cpu_graph.conformance.outcomes import programs, said

NAMES = {torch.uint8: "Byte", torch.int32: "Int", torch.int64: "Long"}


def square(dtype):
    return ones(2, 2).to(dtype)


def image(dtype):
    return ones(1, 1, 4, 4).to(dtype)


def refused(kernel, dtype):
    return f"NotImplementedError: \"{kernel}\" not implemented for '{NAMES[dtype]}'"


KERNELS = {  # product -> the kernel that has no whole numbers, and a call
    "a_product": ("addmm_cuda", lambda d: square(d) @ square(d)),
    "a_matrix_by_a_vector": ("addmv_impl_cuda", lambda d: square(d) @ square(d)[0]),
    "a_dot": ("dot", lambda d: torch.dot(square(d)[0], square(d)[0])),
}
for name, (kernel, call) in KERNELS.items():
    for dtype in (torch.int32, torch.int64, torch.uint8):
        row = refused(kernel, dtype), lambda call=call, dtype=dtype: said(lambda: call(dtype))
        programs(**{f"{name}_of_{NAMES[dtype].lower()}s": row})

LONG = torch.int64
programs(
    a_product_of_whole_numbers_in_a_capture=(
        refused("addmm_cuda", LONG),
        lambda: said(lambda: captured_with(lambda x: x @ x, square(LONG))),
    ),
    a_convolution_of_whole_numbers=(
        "RuntimeError: getCudnnDataTypeFromScalarType() not supported for Long",
        lambda: said(lambda: F.conv2d(image(LONG), image(LONG))),
    ),
    bytes_wrap=([0, 255], lambda: torch.tensor([255, 254], device="cuda").to(torch.uint8) + 1),
    large_numbers_in_eight_bits_are_the_largest=(
        True,
        lambda: (ones(2) * 100).to(torch.float8_e4m3fn).float().tolist() in ([96] * 2, [104] * 2),
    ),
)
programs(
    refused="CUDA has no kernel",
    a_histogram_of_whole_and_fractional_numbers=(
        "NotImplementedError: Could not run 'aten::histogram.bin_ct' with arguments from the "
        "'CUDA' backend. This could be because the operator doesn't exist for this backend, or "
        "was omitted during the selective/custom build process",
        lambda: said(lambda: torch.histogram(ones(4), 2)),
    ),
    an_incomplete_gamma_function_in_half_precision=(
        "NotImplementedError: \"igamma_cuda\" not implemented for 'Half'",
        lambda: said(lambda: torch.igamma(ones(2).half(), ones(2).half())),
    ),
)
programs(
    refused="CUDA refuses it",
    eight_bit_products_of_eights=(
        "RuntimeError: Expected trailing dimension of mat1 to be "
        "divisible by 16 but got mat1 shape:",
        lambda: said(
            lambda: torch._scaled_mm(
                ones(8, 8).to(torch.float8_e4m3fn),
                ones(8, 8).to(torch.float8_e4m3fn).t(),
                scale_a=ones(()),
                scale_b=ones(()),
                out_dtype=torch.bfloat16,
            )
        ),
    ),
)

NAN, INF = float("nan"), float("inf")
MOST, LEAST = 2**31 - 1, -(2**31)
NUMBERS = {  # number -> (its type, a whole type) -> what it becomes there
    "nan": (NAN, {"float32 int32": 0, "float16 int32": 0, "float64 int32": LEAST}),
    "inf": (INF, {"float32 int32": MOST, "float32 int64": 2**63 - 1, "float32 int8": -1}),
    "minus_inf": (-INF, {"float32 int32": LEAST, "float32 int64": -(2**63)}),
    "three_hundred": (300.0, {"float32 int8": 44, "float32 uint8": 44, "float32 int16": 300}),
    "minus_one": (-1.0, {"float32 uint8": 255, "float16 uint8": 255, "float32 int8": -1}),
    "a_large_number": (1e20, {"float32 int32": MOST, "float64 int64": 2**63 - 1}),
    "a_fraction": (-2.75, {"float32 int32": -2, "bfloat16 int64": -2}),
}
NUMBERS["nan"][1]["float32 int64"] = -(2**63)
NUMBERS["inf"][1]["bfloat16 int64"] = 2**63 - 1


def converted(number, types, capture):
    given, wanted = (getattr(torch, name) for name in types.split())
    x = torch.full((), number, dtype=given, device="cuda")
    return captured(lambda: x.to(wanted))() if capture else x.to(wanted)


for name, (number, rows) in NUMBERS.items():
    for types, gives in rows.items():
        for capture in (False, True):
            title = f"{name}_of_{types.replace(' ', '_to_')}{'_in_a_capture' * capture}"
            programs(**{title: (gives, lambda a=(number, types, capture): converted(*a))})


programs(
    refused="of whole numbers by zero",
    whole_numbers_divided_by_zero=([0, 0], lambda: torch.tensor([1, 2], device="cuda") // 0),
)
