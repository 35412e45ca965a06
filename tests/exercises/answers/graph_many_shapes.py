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


def graphs_of(total, sizes, columns):
    """The static inputs and replays of all sizes, in rising order, by the recipe."""
    static_rows = torch.zeros(sizes[-1], columns, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    statics = [static_rows[:size] for size in sizes]
    replays = [capture_step(total, static, pool=pool) for static in reversed(statics)]
    return statics, replays[::-1]


def answer_by(sizes, replays):
    def answer(request):
        number = bisect_left(sizes, len(request))
        return replays[number](pad(request, (0, 0, 0, sizes[number] - len(request)))).clone()

    return answer


def pad_to_buckets__own_inputs(total, sizes, columns):
    pool = torch.cuda.graph_pool_handle()
    inputs = [torch.zeros(size, columns, device="cuda") for size in reversed(sizes)]
    replays = [capture_step(total, rows, pool=pool) for rows in inputs]
    return answer_by(sizes, replays[::-1])


def pad_to_buckets__own_pools(total, sizes, columns):
    static_rows = torch.zeros(sizes[-1], columns, device="cuda")
    replays = [capture_step(total, static_rows[:size]) for size in reversed(sizes)]
    return answer_by(sizes, replays[::-1])


def pad_to_buckets__smallest_first(total, sizes, columns):
    static_rows = torch.zeros(sizes[-1], columns, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    replays = [capture_step(total, static_rows[:size], pool=pool) for size in sizes]
    return answer_by(sizes, replays)


def pad_to_buckets__always_the_largest(total, sizes, columns):
    _, replays = graphs_of(total, sizes, columns)

    def answer(request):
        padded = pad(request, (0, 0, 0, sizes[-1] - len(request)))
        return replays[-1](padded).clone()

    return answer


def pad_to_buckets__one_too_large(total, sizes, columns):
    _, replays = graphs_of(total, sizes, columns)

    def answer(request):
        number = min(bisect_right(sizes, len(request)), len(sizes) - 1)
        padded = pad(request, (0, 0, 0, sizes[number] - len(request)))
        return replays[number](padded).clone()

    return answer


def pad_to_buckets__not_cloned(total, sizes, columns):
    _, replays = graphs_of(total, sizes, columns)

    def answer(request):
        number = bisect_left(sizes, len(request))
        return replays[number](pad(request, (0, 0, 0, sizes[number] - len(request))))

    return answer


def pad_to_buckets__captured_on_demand(total, sizes, columns):
    return lambda request: capture_step(total, request.clone())().clone()


def pad_to_buckets__eager(total, sizes, columns):
    return total


def pad_to_buckets__right_zeroed(total, sizes, columns):
    statics, replays = graphs_of(total, sizes, columns)

    def answer(request):
        number = bisect_left(sizes, len(request))
        statics[number].zero_()
        statics[number][: len(request)].copy_(request)
        return replays[number]().clone()

    return answer


changed(
    pad_to_buckets__right_zeroed,
    rows_left_behind={"statics[number].zero_()": ""},
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


def standardize__rows_behind_left(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    mean = torch.where(valid, x, 0).sum(0) / length
    centered = x - mean
    variance = torch.where(valid, centered, 0).square().sum(0) / length
    return centered / (variance + 1e-5).sqrt()


def standardize__multiplied_twice(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    mean = (x * valid).sum(0) / length
    centered = (x - mean) * valid
    return centered / (centered.square().sum(0) / length + 1e-5).sqrt()


def standardize__of_all_rows(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    centered = x - x.mean(0)
    return torch.where(valid, centered / (centered.square().mean(0) + 1e-5).sqrt(), 0)


def standardize__sliced(x, length):
    centered = x[:length] - x[:length].mean(0)
    result = torch.zeros_like(x)
    result[:length] = centered / (centered.square().mean(0) + 1e-5).sqrt()
    return result


def standardize__unbiased(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    mean = torch.where(valid, x, 0).sum(0) / length
    centered = torch.where(valid, x - mean, 0)
    return centered / (centered.square().sum(0) / (length - 1) + 1e-5).sqrt()


def standardize__right_selected_then_multiplied(x, length):
    valid = (torch.arange(len(x), device="cuda") < length)[:, None]
    x = torch.where(valid, x, 0)
    centered = (x - x.sum(0) / length) * valid
    return centered * (centered.square().sum(0) / length + 1e-5).rsqrt()


def standardize__right_masked_fill(x, length):
    behind = (torch.arange(len(x), device="cuda") >= length)[:, None]
    mean = x.masked_fill(behind, 0).sum(0) / length
    centered = (x - mean).masked_fill(behind, 0)
    return centered / (centered.square().sum(0) / length + 1e-5).sqrt()
