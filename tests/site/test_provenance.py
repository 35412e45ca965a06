"""What a page says of its recording, which a stranger may have made."""

import pytest

from course.paths import REFERENCE_GPU
from course.recordings.recording import recorded_lesson

pytest.importorskip("docutils", reason="the site needs what `make test` installs")

from docs.lesson_page import provenance

SCRIPT = "<script>document.title='x'</script>"


def test_texts_of_a_recording_are_shown_and_never_run():
    about = recorded_lesson("start_here", REFERENCE_GPU).about
    for name in ("gpu", "torch", "driver", "cuda", "python", "date"):
        said = provenance(about | {name: f"{SCRIPT} [x](javascript:1)"})
        assert "<script" not in said and "[x](" not in said, name
        assert "&lt;script&gt;" in said and "\\[x\\](javascript:1)" in said
    assert about["torch"] in provenance(about), "what is harmless stays as it is"
