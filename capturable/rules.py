"""The rules of preflight: what each finds, why that matters, an example, and the fix.

`python -m capturable rules` prints them; capturable/RULES.md is made of that.
"""

from dataclasses import dataclass

KINDS = {
    "refused": "the capture raises an error",
    "frozen": "the capture passes, and every replay repeats what was true at the capture",
    "note": "most captures are fine with it; no fault, and no exit status",
}


@dataclass(frozen=True)
class Rule:
    """A rule: its name, its kind (one of KINDS), why it matters, code that breaks it, and the fix.

    instead: the example's code, repaired; "" where the fix says it all.
    """

    name: str
    kind: str
    why: str
    example: str
    fix: str
    instead: str = ""

    @property
    def slug(self) -> str:
        """The name as it is written in a comment: `# capturable: ignore[cpu-work]`."""
        return slug(self.name)


def slug(name: str) -> str:
    """A rule's name in small letters, with hyphens for blanks."""
    return "-".join(name.lower().split())


ALL = (
    Rule(
        name="sync",
        kind="refused",
        why="The CPU waits for a value of the GPU. During a capture nothing runs, so there is no "
        "value to wait for, and CUDA ends the capture (error 900).",
        example="if loss.item() > 3: ...",
        fix="keep the value on the GPU; read it after the replay, as seldom as you can",
        instead="scale = torch.where(loss > 3, 0.5, 1.0)",
    ),
    Rule(
        name="copy",
        kind="refused",
        why="A copy between ordinary (pageable) CPU memory and the GPU makes the CPU wait. "
        "Replays would also read the CPU memory of the capture again.",
        example="x = batch.cuda()",
        fix="copy before the replay, into a tensor of the graph; from pinned memory, with "
        "non_blocking=True",
        instead="static_x.copy_(pinned_batch, non_blocking=True); graph.replay()",
    ),
    Rule(
        name="CPU work",
        kind="frozen",
        why="Python runs once, at the capture. Counters, prints, files and lists that the step "
        "changes stand still in every replay.",
        example="self.steps += 1",
        fix="do it between the replays: in the graph it runs once, at capture",
        instead="self.steps_on_gpu.add_(1)",
    ),
    Rule(
        name="CPU random numbers",
        kind="frozen",
        why="A random number drawn on the CPU is drawn once, at the capture.",
        example="noise = torch.randn(8).cuda()",
        fix="draw on the GPU (device=...): in the graph a CPU draw happens once, at capture",
        instead='noise = torch.randn(8, device="cuda")',
    ),
    Rule(
        name="seeding",
        kind="refused",
        why="A generator cannot be seeded during a capture, and a seed set there would not be set "
        "again by replays.",
        example="torch.manual_seed(0)",
        fix="seed between the replays",
    ),
    Rule(
        name="generator",
        kind="refused",
        why="A graph advances the random state of the default generator only. Any other one must "
        "be registered with the graph before the capture.",
        example="torch.rand(4, device='cuda', generator=g)",
        fix="call graph.register_generator_state before the capture, and tell preflight: "
        "generators=[...]",
    ),
    Rule(
        name="frozen number",
        kind="frozen",
        why="A Python number (a learning rate, a temperature, a length) that an operator takes is "
        "stored in the graph. Replays use that of the capture.",
        example="logits / temperature",
        fix="make it a GPU tensor and fill_ it between the replays: a graph keeps the number of "
        "its capture",
        instead="logits / temperature_tensor",
    ),
    Rule(
        name="path",
        kind="frozen",
        why="Two runs of the step called different operators. The graph keeps those of the "
        "capture.",
        example="if step % 2: x = x.relu()",
        fix="use torch.where, or one graph for each path and the branch outside",
    ),
    Rule(
        name="capture check",
        kind="note",
        why="Code asks whether it is being captured (torch.cuda.is_current_stream_capturing). The "
        "graph may then hold other kernels, masks or random numbers than the eager step, without "
        "an error. The transformers library asks in this way when it makes attention masks.",
        example="if not torch.cuda.is_current_stream_capturing(): ...",
        fix="compare the graph's results with those of an eager run; force one path where you can",
    ),
    Rule(
        name="shape",
        kind="frozen",
        why="A tensor's shape differs between two runs. A graph has the sizes of its capture.",
        example="x = x[: lengths.max()]",
        fix="pad to a fixed size, or keep a graph for each of a few sizes",
    ),
    Rule(
        name="moved tensor",
        kind="frozen",
        why="A tensor that the step reads is at a different address in each run. A graph reads "
        "the address of its capture.",
        example="self.average = 0.9 * self.average + loss",
        fix="keep one tensor and write into it with copy_: a graph keeps the address of its "
        "capture",
        instead="self.average.lerp_(loss, 0.1)",
    ),
    Rule(
        name="optimizer",
        kind="refused",
        why="Without capturable=True an optimizer keeps its step count on the CPU, and refuses to "
        "step during a capture.",
        example="torch.optim.AdamW(model.parameters())",
        fix="give the optimizer capturable=True; for SGD and Adagrad, which have no such "
        "argument, fused=True and a tensor as lr",
        instead="torch.optim.AdamW(model.parameters(), capturable=True)",
    ),
    Rule(
        name="hook",
        kind="note",
        why="A hook runs at the capture and in no replay: its GPU work is captured, its Python "
        "code is not. torch.cuda.make_graphed_callables refuses modules with hooks.",
        example="module.register_forward_hook(log)",
        fix="do its CPU work elsewhere: a hook runs at capture and in no replay, and "
        "make_graphed_callables refuses it",
    ),
    Rule(
        name="trainable buffer",
        kind="note",
        why="torch.cuda.make_graphed_callables returns gradients for parameters only, so it "
        "refuses a buffer that requires one. A capture of the whole step is fine with it.",
        example="module.register_buffer('scale', torch.ones(1, requires_grad=True))",
        fix="make it a Parameter: make_graphed_callables refuses a buffer that requires a gradient",
    ),
    Rule(
        name="autocast cache",
        kind="frozen",
        why="Autocast around the step caches the weights' casts. The graph would read the cast of "
        "one step for ever, or memory that is gone.",
        example="with torch.autocast('cuda'): graph.replay()",
        fix="enter autocast inside the step, or with cache_enabled=False: a cast kept outside is "
        "frozen",
    ),
    Rule(
        name="kept graph",
        kind="refused",
        why="A tensor from an earlier step keeps its autograd graph alive. Its gradient nodes "
        "belong to the stream that they were made on, which the capture may not use (error 906).",
        example="self.losses.append(loss)",
        fix="detach it, or delete it before the capture: it ties gradients to the main stream "
        "(error 906)",
        instead="self.losses.append(loss.detach())",
    ),
    Rule(
        name="inputs",
        kind="frozen",
        why="A graph reads its static inputs. A real batch of another shape, type or device "
        "cannot be copied into them.",
        example="preflight(step, x, other_inputs=(x[:3],))",
        fix="give the graph inputs of the shape, dtype, device and requires_grad that it will "
        "really get",
    ),
    Rule(
        name="output",
        kind="frozen",
        why="The step returns a Python number. After a replay it is still that of the capture.",
        example="return loss.item()",
        fix="return a tensor: a graph returns the number of its capture",
        instead="return loss",
    ),
    Rule(
        name="stream",
        kind="refused",
        why="Work on a side stream belongs to the graph only if that stream waits for the "
        "capturing one first, and the capturing one waits for it in the end (error 904).",
        example="with torch.cuda.stream(side): y = f(x)",
        fix="call side.wait_stream(own) before the side stream's work, and own.wait_stream(side) "
        "after it",
    ),
    Rule(
        name="capture",
        kind="refused",
        why="A real capture (verify=True) was refused at a line that no other rule names.",
        example="torch._C._cuda_synchronize()",
        fix="ask python -m capturable explain",
    ),
    Rule(
        name="replay",
        kind="frozen",
        why="Two replays (verify=True) end with other values than two eager runs.",
        example="kept.add_(python_value_that_changes)",
        fix="compare it with eager line by line: the graph keeps something that eager changes",
    ),
)
RULES = {rule.name: rule for rule in ALL}
SLUGS = {rule.slug: rule.name for rule in ALL}


def fix_of(name: str) -> str:
    """The fix of a rule."""
    return RULES[name].fix


def level_of(name: str) -> str:
    """ "note" for what most captures are fine with, else "fault"."""
    return "note" if RULES[name].kind == "note" else "fault"


def markdown() -> str:
    """The rules as a page of Markdown, made for capturable/RULES.md."""
    head = (
        "# The rules of preflight\n\n"
        "Made by `python -m capturable rules`. A comment `# capturable: ignore[cpu-work]` at "
        "the end "
        "of a line accepts what a rule finds there.\n"
    )
    kinds = "\n".join(f"- *{kind}*: {what}." for kind, what in KINDS.items())
    return "\n".join([head, kinds, "", *map(_section, ALL)])


def _section(rule: Rule) -> str:
    lines = [f"## {rule.name}", "", f"*{rule.kind}* (`{rule.slug}`). {rule.why}", ""]
    lines += [f"    {rule.example}", "", f"Fix: {rule.fix}."]
    if rule.instead:
        lines += ["", f"    {rule.instead}"]
    return "\n".join([*lines, ""])
