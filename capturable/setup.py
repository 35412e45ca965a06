"""Builds the package, and leaves nothing in the tree."""

from tempfile import TemporaryDirectory

from setuptools import setup

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
