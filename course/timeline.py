"""The name by which recorded cells import explore; it moves out with their next recording."""

from course.touch.timeline import explore

__all__ = ["explore"]
