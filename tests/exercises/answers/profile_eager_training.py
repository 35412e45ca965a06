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


def graph_can_help__right_by_steps(name, step_us):
    summary = traces[name].summary()
    if step_us - summary.gpu_busy_us < 0.2 * step_us:
        return False
    return not summary.loader_share > 0.5


changed(
    graph_can_help,
    whenever_it_idles={" and summary.loader_share <= 0.5": ""},
    by_the_profiled_step={"1 - summary.gpu_busy_us / step_us": "summary.idle_share"},
    swapped={">= CPU_BOUND": "< CPU_BOUND"},
    by_a_tenth={">= CPU_BOUND": "> 0.1"},
    by_half={">= CPU_BOUND": "> 0.5"},
    not_divided={"1 - summary.gpu_busy_us / step_us": "step_us - summary.gpu_busy_us"},
)
