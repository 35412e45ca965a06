"""Answers to the exercises of *Profile eager training*: wrong ones, and other right ones (`__right_`)."""

from helpers.profiling import record_trace


def profile_steps__right_saved_after_the_block(step, path):
    with profile(schedule=schedule(wait=0, warmup=2, active=5, repeat=1)) as profiler:
        for _ in range(7):
            step()
            profiler.step()
    profiler.export_chrome_trace(path)
    return path


def profile_steps__right_by_the_helper(step, path):
    return record_trace(step, path, steps=5, warmup=2)


def profile_steps__without_profiler_step(step, path):
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=2, active=5, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    ):
        for _ in range(7):
            step()
    return path


changed(
    profile_steps,
    cpu_alone={"[ProfilerActivity.CPU, ProfilerActivity.CUDA]": "[ProfilerActivity.CPU]"},
    with_stacks={"on_trace_ready=save": "on_trace_ready=save, with_stack=True"},
)


changed(
    profile_steps__right_saved_after_the_block,
    without_a_schedule={
        "schedule=schedule(wait=0, warmup=2, active=5, repeat=1)": "",
        "for _ in range(7):": "for _ in range(5):",
    },
    without_warm_up={
        "0, warmup=2, active=5": "0, warmup=0, active=5",
        "for _ in range(7):": "for _ in range(5):",
    },
    not_saved={"profiler.export_chrome_trace(path)": ""},
    stopped_too_early={"for _ in range(7):": "for _ in range(5):"},
    repeated_and_saved_late={
        "(schedule=schedule(wait=0, warmup=2, active=5, repeat=1)) as profiler:":
            "(schedule=schedule(wait=0, warmup=2, active=5)) as profiler:",
    },
)


def mean_and_largest__right_step_by_step(step, batches):
    total = torch.zeros((), device="cuda")
    largest = torch.zeros((), device="cuda")
    for inputs, targets in batches:
        loss = step(inputs, targets)
        total += loss
        largest = torch.maximum(largest, loss)
    return total.item() / len(batches), largest.item()


changed(
    mean_and_largest__right_step_by_step,
    by_a_branch={"torch.maximum(largest, loss)": "max(largest, loss)"},
    read_in_the_loop={"total += loss": "total += loss.item()"},
)


changed(
    mean_and_largest,
    tensors={"losses.mean().item(), losses.max().item()": "losses.mean(), losses.max()"},
    sum_for_mean={"losses.mean()": "losses.sum()"},
    without_the_last={"in batches:": "in batches[:-1]:"},
)
