"""The course's helpers: the model, the recipe, the measurements, the charts and the recordings."""
