"""Changes of solutions that are right too: exercise -> {change: why it is right}."""

RIGHT: dict[str, dict[str, str]] = {}
