"""Does a graph pay? The measured models, the fitted model
of two numbers, and sliders for a model of one's own.
"""

import numpy as np
import pandas as pd
from IPython.display import HTML

from course.touch import touchable
from course.touch.svg import drawing, image, line, rectangle, ring, text
from helpers.charts import COLOURS

WIDTH, HEIGHT = 580, 330
LEFT = 46
RIGHT = 572
TOP = 44
BOTTOM = 280
X, Y = (0.3, 400.0), (0.8, 30.0)  # what the axes reach over: us per launch, and eager / graph
TITLE = "Right of the dashed line a graph saves little."


def sliders(points: pd.DataFrame, launch_us: float, stretch: float) -> HTML:
    """The measured models over ideal kernel time per launch,
    and sliders for depth, width, batch and host time per launch.

    points: a row per measured model with depth, width, batch, launches, ideal_us, and the step
    times eager and graph (µs). launch_us and stretch: the fitted host time per launch (µs), and how
    many times the ideal time kernels take.
    """
    known = points.assign(x=points.ideal_us / points.launches, gain=points.eager / points.graph)
    slope, start = np.polyfit(points.depth, points.launches, 1)
    data = {
        "points": known[["depth", "width", "batch", "eager", "graph", "x", "gain"]]
        .round(3)
        .to_dict("records"),
        "launches": [round(slope, 3), round(start, 3)],
        "launch_us": round(float(launch_us), 1),
        "stretch": round(float(stretch), 3),
        "box": [LEFT, RIGHT, TOP, BOTTOM],
        "x": X,
        "y": Y,
        "colour": COLOURS["your guess"],
    }
    crossover = launch_us / stretch
    said = (
        f"Chart of {len(points)} measured models: eager over graph, step time, from "
        f"{known.gain.min():.1f} to "
        f"{known.gain.max():.1f} times, over the ideal kernel time per launch; the fitted model "
        "has its crossover at "
        f"{crossover:.1f} µs. {TITLE}"
    )
    return touchable("pays", image(picture(known, crossover), said), data)


def across(us: float) -> float:
    """Where an ideal kernel time per launch lies in the picture."""
    return LEFT + (RIGHT - LEFT) * float(np.log(us / X[0]) / np.log(X[1] / X[0]))


def up(times: float) -> float:
    """Where a ratio lies in the picture."""
    return BOTTOM - (BOTTOM - TOP) * float(np.log(times / Y[0]) / np.log(Y[1] / Y[0]))


def picture(known: pd.DataFrame, crossover: float) -> str:
    """The points, the model's line and its crossover, as SVG."""
    grey = "#555555"
    axes = [
        text(across(us) - 6, BOTTOM + 18, f"{us:g}", 13, grey) for us in (1, 3, 10, 30, 100, 300)
    ]
    axes += [text(LEFT - 28, up(times) + 5, f"{times:g}", 13, grey) for times in (1, 2, 5, 10, 20)]
    axes += [
        rectangle(LEFT, up(times), RIGHT - LEFT, 0.6, "#DDDDDD") for times in (1, 2, 5, 10, 20)
    ]
    axes.append(text(LEFT, BOTTOM + 40, "ideal kernel time per launch, µs", 14, grey))
    axes.append(text(4, TOP - 10, "eager / graph, step time", 14, grey))
    corner = max(X[0], crossover / Y[1])
    model = [(across(corner), up(crossover / corner)), (across(crossover), up(1)), (RIGHT, up(1))]
    dashed = [(across(crossover), TOP), (across(crossover), BOTTOM)]
    marks = [
        ring(
            across(row.x),
            up(row.gain),
            COLOURS["step time"],
            f"{row.depth} layers, {row.width} wide, batch {row.batch}",
        )
        for row in known.itertuples()
    ]
    lines = [
        line(model, "#222222", "model"),
        line(dashed, COLOURS["launch"], "crossover", 'stroke-dasharray="6 4"'),
    ]
    return drawing(WIDTH, HEIGHT, TITLE, text(4, 16, TITLE, 15), *axes, *lines, *marks)
