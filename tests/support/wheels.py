"""Wheels of a few lines, and a build backend that makes
one of a project: what tests install with pip and uv.
"""

import zipfile
from pathlib import Path


def wheel(folder, name, version, needs=(), **modules):
    """Write a wheel for any Python into folder: modules
    are their names and texts. Returns its path.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    about = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *[f"Requires-Dist: {need}" for need in needs],
    ]
    files = {f"{module.replace('.', '/')}.py": text for module, text in modules.items()}
    files[f"{stem}.dist-info/METADATA"] = "\n".join(about) + "\n"
    files[f"{stem}.dist-info/WHEEL"] = (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{path},,\n" for path in [*files, record])
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
    return path


def build_editable(folder, config_settings=None, metadata_directory=None):
    """Build the project that has this file as its backend: it needs torch and holds nothing."""
    return wheel(folder, "cuda-graphs-course", "0.1.0", needs=["torch"]).name
