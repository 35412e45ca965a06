"""Scripts to copy: each runs by itself, and needs torch alone."""
