"""Formats: in which order results lie in memory, in eager and in a capture."""

import torch
from torch.nn import functional as F

from tests.cpu_graph.conformance.common import captured, ones
from tests.cpu_graph.conformance.outcomes import program, programs

LAST = torch.channels_last


def image(batch=2, channels=3, size=4):
    return ones(batch, channels, size, size).to(memory_format=LAST)


def weight(out=8, channels=3, size=1):
    return ones(out, channels, size, size)


def strides(function, *given, capture):
    function(*given)  # as a warm-up
    result = captured(lambda: function(*given)).output if capture else function(*given)
    return list(result.stride())


ROWS = {  # what is done with a channels_last image of 2 x 3 x 4 x 4, and other tensors: strides
    "a_batch_norm_of_channels_last": (
        [48, 1, 12, 3],
        lambda x: F.batch_norm(x, None, None, training=True),
        [image],
    ),
    "channels_last_made_contiguous": ([48, 16, 4, 1], lambda x: x.contiguous(), [image]),
    "a_convolution_of_channels_last": ([128, 1, 32, 8], F.conv2d, [image, weight]),
    "a_convolution_by_a_channels_last_weight": (
        [72, 1, 24, 8],
        F.conv2d,
        [lambda: ones(2, 3, 4, 4), lambda: weight(size=2).to(memory_format=LAST)],
    ),
}
for name, (gives, function, makers) in ROWS.items():
    for capture in (False, True):

        def run(function=function, makers=makers, capture=capture):
            return strides(function, *(make() for make in makers), capture=capture)

        programs(**{f"{name}_in_a_capture" if capture else name: (gives, run)})


def is_last(tensor):
    return tensor.is_contiguous(memory_format=LAST)


def network():
    return torch.nn.Conv2d(3, 8, 3)


programs(
    an_image_of_the_cpu_to_channels_last_on_the_gpu=(
        [True, True],
        lambda: [is_last(y := torch.ones(2, 3, 4, 4).to("cuda", memory_format=LAST)), y.is_cuda],
    ),
    a_format_that_is_there_is_no_copy=(
        True,
        lambda x=None: (x := image()).to(memory_format=LAST).data_ptr() == x.data_ptr(),
    ),
    a_gradient_has_its_weights_format=(
        True,
        lambda net=None: (
            (net := network().cuda().to(memory_format=LAST))(image()).sum().backward()
            or is_last(net.weight.grad)
        ),
    ),
)


@program(["RuntimeError: view size is not compatible with input tensor's size and stride"])
def a_captured_convolution_of_channels_last_is_viewed():
    x, w = image(), weight()
    F.conv2d(x, w)
    captured(lambda: F.conv2d(x, w).view(2, -1))


@program([[64, 8, 16, 1]] * 2)
def attention_in_full_precision_is_transposed():
    q = torch.ones(2, 2, 4, 8, device="cuda")
    F.scaled_dot_product_attention(q, q, q)
    replay = captured(lambda: F.scaled_dot_product_attention(q, q, q))
    return [list(one.stride()) for one in (F.scaled_dot_product_attention(q, q, q), replay.output)]
