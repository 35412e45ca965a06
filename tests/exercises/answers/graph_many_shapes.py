"""Answers to the exercises of *Graph many shapes*: wrong ones, and other right ones (`__right_`)."""

from bisect import bisect_right


def largest_valid__sliced(values, length):
    return values[:length].max()


def largest_valid__of_all(values, length):
    return values.max()


def largest_valid__zero_behind(values, length):
    return torch.where(torch.arange(len(values), device="cuda") < length, values, 0).max()


def largest_valid__one_too_many(values, length):
    return torch.where(torch.arange(len(values), device="cuda") <= length, values, -torch.inf).max()


def largest_valid__added_mask(values, length):
    behind = torch.arange(len(values), device="cuda") >= length
    return (values - 1e9 * behind).max()


def largest_valid__frozen(values, length):
    return values[:3].max()


def largest_valid__R4_minus_a_thousand(values, length):
    return torch.where(torch.arange(len(values), device="cuda") < length, values, -1e3).max()


def largest_valid__D11_numbers_from_the_cpu(values, length):
    return torch.where(torch.arange(len(values)).cuda() < length, values, -torch.inf).max()


def largest_valid__right_masked_fill(values, length):
    behind = torch.arange(len(values), device=values.device) >= length
    return values.masked_fill(behind, float("-inf")).amax()


def largest_valid__right_cumulative(values, length):
    return values.cummax(0).values.gather(0, (length - 1)[None])[0]


def largest_valid__right_lowest_number(values, length):
    behind = torch.arange(len(values), device="cuda") >= length
    return values.masked_fill(behind, torch.finfo(values.dtype).min).topk(1).values[0]


def pad_to_buckets__captured_on_demand(total, sizes, columns):
    return lambda request: capture_step(total, request.clone())().clone()


def pad_to_buckets__eager(total, sizes, columns):
    return total


changed(
    pad_to_buckets,
    own_inputs={"static_rows[:size]": "torch.zeros(size, columns, device='cuda')"},
    own_pools={", pool=pool": ""},
    smallest_first={"reversed(sizes)": "sizes"},
    always_the_largest={"sizes[bisect_left(sizes, len(request))]": "sizes[-1]"},
    one_too_large={
        "sizes[bisect_left(sizes, len(request))]":
            "sizes[min(bisect_right(sizes, len(request)), len(sizes) - 1)]",
    },
    not_cloned={"replays[size](padded).clone()": "replays[size](padded)"},
    rows_left_behind={
        "padded = pad(request, (0, 0, 0, size - len(request)))":
            "static_rows[:len(request)].copy_(request)",
        "replays[size](padded)": "replays[size]()",
    },
    right_zeroed={
        "padded = pad(request, (0, 0, 0, size - len(request)))":
            "static_rows[:size].zero_()\n"
            "static_rows[:len(request)].copy_(request)",
        "replays[size](padded)": "replays[size]()",
    },
)


def read_results__at_once(answer, requests, columns):
    return [answer(request).cpu() for request in requests]


def read_results__on_the_gpu(answer, requests, columns):
    return [answer(request).clone() for request in requests]


def read_results__last_one_missing(answer, requests, columns):
    return read_results(answer, requests, columns)[:-1]


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
    only_cloned={"arrived[1 - this].synchronize()": ""},
)


def standardize__of_all_rows(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    centered = x - x.mean(0)
    return torch.where(valid, centered / (centered.square().mean(0) + 1e-5).sqrt(), 0)


def standardize__sliced(x, length):
    centered = x[:length] - x[:length].mean(0)
    result = torch.zeros_like(x)
    result[:length] = centered / (centered.square().mean(0) + 1e-5).sqrt()
    return result


changed(
    standardize,
    rows_behind_left={
        "torch.where(valid, x - mean, 0)": "x - mean",
        "centered.square()": "torch.where(valid, centered, 0).square()",
    },
    multiplied_twice={
        "torch.where(valid, x, 0)": "x * valid",
        "torch.where(valid, x - mean, 0)": "(x - mean) * valid",
    },
    unbiased={"centered.square().sum(0) / length": "centered.square().sum(0) / (length - 1)"},
    right_selected_then_multiplied={"torch.where(valid, x - mean, 0)": "(x - mean) * valid"},
    right_masked_fill={
        "torch.where(valid, x, 0)": "x.masked_fill(~valid, 0)",
        "torch.where(valid, x - mean, 0)": "(x - mean).masked_fill(~valid, 0)",
    },
)
