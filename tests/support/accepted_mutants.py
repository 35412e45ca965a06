"""Changes of solutions that a check accepts: exercise and change -> why it is right."""

import tomllib

from course.paths import ROOT

TEXT = (ROOT / "tests/support/accepted_mutants.toml").read_text(encoding="utf-8")
RIGHT: dict[str, str] = {
    change: group["why"] for group in tomllib.loads(TEXT)["accepted"] for change in group["changes"]
}
