"""The exercises: what checks an answer, and says what is wrong with it.

checks     check, check_capture: an answer against its solution, or used as its scenario uses it
guesses    compare_guess: a guess beside the measurement
scripts    repaired, symptoms: the ten broken scripts
scenarios  how the answer to an exercise in captures is used, a file per lesson
answers    runs of an answer, and what they show, in words
unfinished what a lesson, an exercise or an exhibit still lacks
puzzles    check_capture with a picture; installed without this file, it needs no course

Lessons import what they need from here.
"""

from exercises.checks import check, check_capture
from exercises.guesses import compare_guess
from exercises.scripts import repaired, symptoms_of_scripts

__all__ = ["check", "check_capture", "compare_guess", "repaired", "symptoms_of_scripts"]
