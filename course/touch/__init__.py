"""Pictures that one can touch, in notebooks and on the site: cpu_graph.svg has their shapes, each
has a module, a script and a style, and trace_report.touch has their frame.

timeline: a step, hovered over and zoomed into, as trace_report draws it; capture: eager, capture
    and replay as time passes.

On GitHub, or in a notebook that is not trusted, scripts do not run: one sees what stands still.
"""
