"""What several test files use; nothing else of tests/ is imported by another file."""
