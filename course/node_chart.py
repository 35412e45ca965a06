"""Draw a CUDA graph by its dependencies."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from helpers.charts import COLOURS, titled_axes


def draw_nodes(
    labels: Sequence[str], edges: list[list[int]], colours: Sequence[str], title: str, wide: int = 7
) -> Axes:
    """Draw each node behind those that it waits for, one per row of labels, in the course's colours
    of these names.

    edges: sorted pairs of a node's number and that of one that waits for it. A line holds so many
    (wide) levels of the graph and turns round at its end; nodes of one level stand below each
    other.
    """
    places = _places(len(labels), edges, wide)
    lowest = min((down for _, down in places), default=0)
    axes = titled_axes(title, 1.1 - 0.45 * lowest)
    boxes = []
    for place, label, colour in zip(places, labels, colours, strict=True):
        look = {"boxstyle": "round,pad=0.4", "color": COLOURS[colour]}
        text = axes.text(*place, label, ha="center", va="center", fontsize=8, bbox=look)
        boxes.append(text.get_bbox_patch())
    for source, target in edges:
        ends = {"patchA": boxes[source], "patchB": boxes[target], "shrinkA": 0, "shrinkB": 0}
        look = {"arrowstyle": "->", "color": COLOURS["step time"]} | ends
        (here, level), (there, other) = places[source], places[target]
        if level == other and abs(there - here) > 1:
            look["connectionstyle"] = "arc3,rad=-0.4"  # round the nodes between them
        axes.annotate("", places[target], places[source], arrowprops=look)
    axes.set(xlim=(-0.6, wide - 0.4), ylim=(lowest - 0.5, 0.5))
    axes.axis("off")
    return axes


def _places(count, edges, wide):
    """Across and down, for each node: by how many others, one after the other, it waits for."""
    level = [0] * count
    for source, target in sorted(edges):
        level[target] = max(level[target], level[source] + 1)
    places = []
    for row, (line, column) in enumerate(divmod(one, wide) for one in level):
        across = wide - 1 - column if line % 2 else column
        places.append((across, -line - level[:row].count(level[row])))
    return places
