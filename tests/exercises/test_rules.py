"""What the text of an exercise asks, its scenario checks: sentences compared with calls."""

import re
from types import CodeType, FunctionType

import nbformat

from course.lessons import lesson_file
from course.paths import lesson_name
from exercises import scenarios
from exercises.scenarios import rules
from tests.support.captures import EXERCISES, each

SENTENCES = {  # of an exercise's text or stub -> the rules of which its scenario calls one
    r"(?<!trains with )\bone graph\b": (rules.require_one_graph,),
    r"caller's .{0,40}(not|never) change|as it is\b|keeps? (its|their) values": (rules.unmodified,),
    r"\bdetached\b|without (its|an|their) autograd graph": (rules.refuse_grad,),
    r"branches that may run at the same time": (rules.require_concurrent,),
    r"graphs can (still )?run at the same time": (rules.require_graph_overlap,),
    r"may free .{0,20}right after": (rules.occupy_freed,),
}


def text(path, name):
    """The text of an exercise: what the lesson says of all, and its own section with its stub."""
    cells = nbformat.read(path, as_version=4).cells
    openings = [cell.source for cell in cells if re.search("^## Exercises", cell.source, re.M)]
    opening = "".join(openings[:1])  # the puzzles have none
    of_all = opening.partition("## Exercises")[2].partition("### ")[0]
    stub = next(
        n for n, cell in enumerate(cells) if re.search(rf"^def {name}\(", cell.source, re.M)
    )
    said = cells[stub].source
    for cell in reversed(cells[:stub]):
        if cell.cell_type == "markdown":
            head, _, section = cell.source.rpartition("\n### ")
            said = (section if head else cell.source) + said
            if "### " in cell.source:
                break
    return re.sub(r"\s+", " ", of_all + said)


def names_of(code):
    """The names that a function's code uses, and those of the functions inside of it."""
    inside = [names_of(one) for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*inside)


def called(function):
    """The functions and the names of attributes that a scenario reaches in its module."""
    reached, waiting = set(), [function]
    while waiting:
        one = waiting.pop()
        for name in names_of(one.__code__) - reached:
            reached.add(name)
            other = one.__globals__.get(name)
            other = getattr(other, "__wrapped__", other)
            if isinstance(other, FunctionType) and other.__module__.startswith(
                "exercises.scenarios"
            ):
                waiting.append(other)
    return reached


def asked(path, name):
    """The rules that an exercise's text states: tuples of which one is to be called."""
    said = text(path, name)
    return [wanted for sentence, wanted in SENTENCES.items() if re.search(sentence, said)]


@each
def test_what_the_text_asks_is_checked(path, name):
    found = called(scenarios.find_scenario(lesson_name(path), name))
    for wanted in asked(path, name):
        names = {getattr(rule, "__name__", rule) for rule in wanted}
        assert names & found, f"{name}: its text has the sentence of {names}"


def test_each_rule_is_used():
    judges = [scenarios.find_scenario(lesson_name(path), name) for path, name in EXERCISES]
    used = set().union(*map(called, judges))
    public = {
        name
        for name, rule in vars(rules).items()
        if getattr(rule, "__module__", "") == rules.__name__
    }
    assert public <= used


def test_a_text_that_asks_more_than_its_scenario_is_found():
    path = lesson_file("change_weights")
    assert (rules.occupy_freed,) in asked(path, "published")
    assert "no_such_rule" not in called(scenarios.find_scenario("change_weights", "published"))
