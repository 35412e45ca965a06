"""A picture of a capture: its nodes with their streams, the memory that they read and write, and
each replay on it, one after the other.

    picture(function)     runs the function on the stand-in, and draws what it captures and replays

What goes wrong is red: a result that is overwritten before it was read, memory that was freed or
that nobody has filled, a stream that was not joined.
"""

from dataclasses import dataclass, replace
from textwrap import wrap

from cpu_graph.graphs import all_nodes
from cpu_graph.history import NOBODY, WAIT, watch
from cpu_graph.log import clobbers, on_stand_in, operator_of, ordered
from cpu_graph.nodes import POISON
from cpu_graph.svg import arrow, drawing, img_tag, outlined_box, text
from cpu_graph.torch_names import cpu_graphs

WIDTH = 800
LEFT, RIGHT = 150, 250  # the lanes of words
GRAPHS = 3  # how many are drawn, at most
NODES, COLUMNS = 5, 6
ROWS = 18
NODE, GAP = 150, 16
LANE, ROW = 64, 30
READ, WRITTEN = ("#CFE6F7", "#0072B2"), ("#FCE5C2", "#C87A00")
NEITHER = "#FFFFFF", "#CCCCCC"
PLAIN, WRONG = ("#FFFFFF", "#222222"), ("#F8D0D6", "#B00020")
RED, GREY = WRONG[1], "#666666"
BOLD, MIDDLE = 'font-weight="bold"', 'text-anchor="middle"'
TITLE = "A capture, the memory of its graph, and its replays."
LEGEND = f"r: read, w: written, {NOBODY}: nobody has written it, red: what goes wrong"
NONE = "Nothing was captured."


@dataclass
class Picture:
    """A drawing as SVG, what it shows in words, and what goes wrong in it. Notebooks show it."""

    svg: str
    said: str
    faults: list

    def _repr_html_(self):
        return img_tag(self.svg, self.said, 'class="chart" ')


def picture(function, *arguments):
    """Run a function on the stand-in, also inside of cpu_graphs(), and draw what it captures and
    replays. Raises what the function raises.
    """
    device = on_stand_in()
    if device is None:
        with cpu_graphs():
            return picture(function, *arguments)
    with watch(device) as history:
        function(*arguments)
    return draw(history)


def draw(history, wrong=""):
    """The picture of what was watched. wrong: what a check says of it; None if all of it is right:
    then nothing is red.
    """
    columns = _blocks_to_draw(history)
    parts, top = [], 0
    said, faults = [], []
    for number, capture in enumerate(list(history.captures.values())[:GRAPHS], 1):
        top += _draw_graph(history, capture, number, top, (parts, said, faults))
    if not history.captures:
        parts.append(text(8, top + 20, NONE, 14, RED, BOLD))
    width = min(110.0, (WIDTH - LEFT - RIGHT) / max(1, len(columns)))
    x = {block: LEFT + width * at for at, block in enumerate(columns)}
    for block, left in x.items():
        parts.append(_fit_text(left + width / 2, top + 30, history.block_name(block), width, BOLD))
    y, held = top + 42, {}
    for step in _steps_to_draw(history, columns):
        held |= step.values
        marked = {} if wrong is None else step.faults
        parts += _draw_step(history, step, marked, held, (x, y, width))
        for block, what in marked.items():
            name = history.block_name(block)
            faults.append(f"{history.label(step)}: {name} {what}.".replace(":  ", ": "))
        said.append(_step_in_words(step, history, columns))
        y += ROW
    for line in wrap(wrong, WIDTH // 8) if wrong and not faults else ():
        parts.append(text(8, y + 20, line, 13, RED, BOLD))
        y += 20
    faults = faults or [wrong] * bool(wrong)
    parts.append(text(8, y + 20, LEGEND, 12, GREY))
    words = " ".join([TITLE, *(said or [NONE]), *(f"Wrong: {one}" for one in faults)])
    return Picture(drawing(WIDTH, y + 30, TITLE, *parts), words, faults)


def _draw_step(history, step, marked, held, where):
    """One step: its label, the memory, and what goes wrong."""
    x, y, width = where
    end = LEFT + width * len(x)
    parts = [text(8, y + 19, _cut(history.label(step), LEFT), 13)]
    for block, left in x.items():
        kind = WRITTEN if block in step.writes else READ if block in step.reads else NEITHER
        sign = "r" * (block in step.reads) + "w" * (block in step.writes)
        colours = WRONG if block in marked else kind
        parts.append(outlined_box(left + 2, y + 2, width - 4, ROW - 5, *colours))
        parts.append(_fit_text(left + width / 2, y + 20, held.get(block, ""), width - 18))
        parts.append(text(left + 6, y + 11, sign, 10, GREY))
    what = ", ".join(dict.fromkeys(marked.values()))
    waits = "the CPU waits" * step.waits
    parts.append(text(end + 16, y + 19, what or waits, 12, RED if what else GREY))
    for block in marked.keys() & x.keys():
        parts.append(arrow((end + 14, y + 28), (x[block] + width - 2, y + 28), RED))
    return parts


def _blocks_to_draw(history):
    """The memory that is drawn: what has a name or is used outside of graphs first."""
    outside = {b for step in history.steps if step.graph is None for b in step.reads | step.writes}
    nodes = [node for capture in history.captures.values() for node in _nodes(capture)]
    found = list(dict.fromkeys(block for node in nodes for block, *_ in node.spans))
    known = [block for block in found if history.name_of(block) or block in outside]
    return (known if len(found) > 4 else found)[:COLUMNS]


def _steps_to_draw(history, columns):
    """The steps that touch what is drawn, those on different tensors in one row; of those before a
    capture the ones that write to its tensors.
    """
    kept = []
    for at, step in enumerate(history.steps):
        mine = {b for b in step.reads | step.writes if b in columns}
        if at < history.begun:
            mine = {b for b in mine if history.first[b] == step.writes.get(b)}
        if not mine and not (at >= history.begun and (step.operator == WAIT or step.faults)):
            continue
        last = kept[-1] if kept else step
        apart = any(one.faults or one.waits or one.graph is not None for one in (last, step))
        if kept and not apart and not mine & last.values.keys():
            operators = dict.fromkeys([*last.operator.split(", "), step.operator])
            parts = "reads", "writes", "values"
            changes = {part: getattr(last, part) | getattr(step, part) for part in parts}
            kept[-1] = replace(last, operator=", ".join(operators), **changes)
        else:
            kept.append(step)
    return kept if len(kept) <= ROWS else [*kept[: ROWS // 2], *kept[-ROWS // 2 :]]


def _draw_graph(history, capture, number, top, lists):
    """Add the nodes of a capture, in the lanes of their streams; returns their height."""
    parts, said, wrong = lists
    nodes = _nodes(capture)
    streams = list(dict.fromkeys([capture.origin, *(node.stream for node in nodes)]))
    failed = capture.number not in {one.number for one in history.device.captures}
    title = (f"graph {number}" if len(history.captures) > 1 else "the graph") + ": failed" * failed
    parts.append(text(8, top + 20, title, 14, RED if failed else PLAIN[1], BOLD))
    for at, _ in enumerate(streams):
        lane = "side stream" if at else "capture stream"
        parts.append(text(8, top + 52 + LANE * at, lane, 12, GREY))
    width = min(NODE, (WIDTH - LEFT) / max(1, len(nodes[:NODES])) - GAP - 8)
    place = {
        node: (LEFT + at * (width + GAP), top + 28 + LANE * streams.index(node.stream))
        for at, node in enumerate(nodes[:NODES])
    }
    for one, other in _edges(list(place)):
        (x, y), (to_x, to_y) = place[one], place[other]
        parts.append(arrow((x + width, y + 25), (to_x - 1, to_y + 25)))
    bad = {node: "races with a node of another stream" for pair in _races(nodes) for node in pair}
    if failed and not capture.lost:
        end = capture.clocks[capture.origin]
        bad |= {n: "is on a stream that was not joined" for n in nodes if not n.before(end)}
    for node, (x, y) in place.items():
        parts.append(outlined_box(x, y, width, 50, *(WRONG if node in bad else PLAIN)))
        for line, words in enumerate((operator_of(node), *_read_write_texts(history, node))):
            more, size = ("", 10) if line else (BOLD, 12)
            parts.append(_fit_text(x + width / 2, y + 15 + 14 * line, words, width, more, size))
    found = [f"{operator_of(node)} {what}." for node, what in bad.items()]
    found += ["The capture failed here."] * bool(failed and capture.lost)
    wrong += found
    more = len(nodes) - len(place)
    parts.append(text(LEFT, top + 20, " ".join(found), 12, RED, BOLD))
    parts.append(text(WIDTH - 130, top + 20, f"and {more} more nodes" * (more > 0), 12, GREY))
    told = [
        f"{operator_of(node)} ({' '.join(_read_write_texts(history, node)).strip()})"
        for node in nodes
    ]
    where = f"on {len(streams)} streams" if len(streams) > 1 else "on one stream"
    said.append(f"{title.capitalize()}, {where}: {', '.join(told)}.")
    return 32 + LANE * len(streams)


def _fit_text(middle, y, words, width, more="", size=12):
    return text(middle, y, _cut(words, width, size), size, more=f"{MIDDLE} {more}")


def _cut(words, width, size=13):
    most = max(3, int(width / (0.6 * size)))
    return words if len(words) <= most else words[: most - 1] + "…"


def _nodes(capture):
    return [node for node in all_nodes(capture.nodes) if node.operator is not POISON]


def _edges(nodes):
    """The pairs of which the second waits for the first, without those that follow from others."""
    pairs = [(a, b) for a in nodes for b in nodes if a is not b and a.before(b.clock)]
    known = set(pairs)
    return [(a, b) for a, b in pairs if not any({(a, c), (c, b)} <= known for c in nodes)]


def _races(nodes):
    """Pairs of nodes that touch the same memory, one writing, and that nothing orders."""
    pairs = [(a, b) for at, a in enumerate(nodes) for b in nodes[at + 1 :] if a.stream != b.stream]
    return [(a, b) for a, b in pairs if not ordered(a, b) and (clobbers(a, b) or clobbers(b, a))]


def _read_write_texts(history, node):
    """What a node reads, and "→ y" for what it writes if that has a name."""
    reads, writes = {}, {}
    for (block, *_), written in node.spans.items():
        if not written:
            reads[history.block_name(block)] = True
        elif name := history.name_of(block):
            writes[name] = True
    return ", ".join(reads), f"→ {', '.join(writes)}" * bool(writes)


def _step_in_words(step, history, columns):
    reads = [history.block_name(b) for b in step.reads if b in columns]
    writes = [f"{history.block_name(b)} = {step.values[b]}" for b in step.writes if b in columns]
    said = [f"reads {', '.join(reads)}"] if reads else []
    said += [f"writes {', '.join(writes)}"] if writes else []
    said += ["the CPU waits"] if step.waits else []
    label = history.label(step)
    return f"{label[0].upper()}{label[1:]}: {' and '.join(said)}."
