"""Answers to the exercises of *Graph many shapes*: wrong ones, and other right ones (`__right_`)."""

from bisect import bisect_right


changed(
    pad_to_buckets,
    captured_on_demand={
        "return answer": "return lambda request: capture_step(total, request.clone())().clone()",
    },
    eager={"return answer": "return total"},
    own_inputs={"static_rows[:size]": "torch.zeros(size, columns, device='cuda')"},
    own_pools={", pool=pool": ""},
    smallest_first={"reversed(sizes)": "sizes"},
    one_too_large={
        "sizes[bisect_left(sizes, len(request))]":
            "sizes[min(bisect_right(sizes, len(request)), len(sizes) - 1)]",
    },
    rows_left_behind={
        "padded = pad(request, (0, 0, 0, size - len(request)))":
            "static_rows[:len(request)].copy_(request)",
        "replays[size](padded)": "replays[size]()",
    },
    right_zeroed={
        "padded = pad(request, (0, 0, 0, size - len(request)))":
            "static_rows[:size].zero_()\nstatic_rows[:len(request)].copy_(request)",
        "replays[size](padded)": "replays[size]()",
    },
)


def read_results__at_once(answer, requests, columns):
    return [answer(request).cpu() for request in requests]


def read_results__right_a_row_per_request(answer, requests, columns):
    rows = torch.empty(len(requests), columns).pin_memory()
    for row, request in zip(rows, requests, strict=True):
        row.copy_(answer(request), non_blocking=True)
    torch.cuda.synchronize()
    return list(rows)


def read_results__right_read_later_on_the_gpu(answer, requests, columns):
    kept = [answer(request).clone() for request in requests]
    return list(torch.stack(kept).cpu())


changed(
    read_results,
    last_one_missing={"return results": "return results[:-1]"},
    on_the_gpu={"return results": "return [answer(request).clone() for request in requests]"},
    only_cloned={"arrived[1 - this].synchronize()": ""},
    one_buffer={"for _ in range(2)]\narrived": "] * 2\narrived"},
)


def standardize__sliced(x, length):
    centered = x[:length] - x[:length].mean(0)
    result = torch.zeros_like(x)
    result[:length] = centered / (centered.square().mean(0) + 1e-5).sqrt()
    return result


changed(
    standardize,
    of_all_rows={
        "mean = x.sum(0) / length": "mean = x.mean(0)",
        "torch.where(valid, x, 0)": "x",
        "variance = centered.square().sum(0) / length": "variance = (x - mean).square().mean(0)",
    },
    rows_behind_left={
        "torch.where(valid, x - mean, 0)": "x - mean",
        "centered.square()": "torch.where(valid, centered, 0).square()",
    },
    multiplied_twice={
        "torch.where(valid, x, 0)": "x * valid",
        "torch.where(valid, x - mean, 0)": "(x - mean) * valid",
    },
    digits_cancelled={
        "centered.square().sum(0) / length":
            "torch.where(valid, x, 0).square().sum(0) / length - mean.square()",
    },
    unbiased={"centered.square().sum(0) / length": "centered.square().sum(0) / (length - 1)"},
    right_selected_then_multiplied={"torch.where(valid, x - mean, 0)": "(x - mean) * valid"},
    right_masked_fill={
        "torch.where(valid, x, 0)": "x.masked_fill(~valid, 0)",
        "torch.where(valid, x - mean, 0)": "(x - mean).masked_fill(~valid, 0)",
    },
)
