"""What was found in several steps, for other programs: SARIF 2.1.0 and JUnit's XML."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from capturable import __version__
from capturable.accepted import key_of
from capturable.findings import Finding, Findings, short
from capturable.rules import ALL, RULES, Rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"refused": "error", "frozen": "error", "note": "note"}  # of SARIF, by a rule's kind


class Checked(NamedTuple):
    """A step by its target, and its findings; or the sentence that says why there are none."""

    step: str
    findings: Findings
    error: str = ""


def sarif(checked: Iterable[Checked], warnings: Iterable[str] = ()) -> dict[str, Any]:
    """A SARIF log (OASIS, version 2.1.0) of one run: the rules, a result for each finding, and what
    could not be checked."""
    steps = list(checked)
    rules = [_rule(rule) for rule in ALL]
    results = [_result(one.step, finding) for one in steps for finding in one.findings]
    failed = [_notification("error", f"{one.step}: {one.error}") for one in steps if one.error]
    noted = [_notification("warning", warning) for warning in warnings]
    invocation = {
        "executionSuccessful": not failed,
        "toolExecutionNotifications": failed + noted,
    }
    driver = {"name": "capturable", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.slug,
        "name": rule.name,
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Fix: {rule.fix}."},
        "defaultConfiguration": {"level": LEVELS[rule.kind]},
    }


def _result(step: str, finding: Finding) -> dict[str, Any]:
    text = f"{finding.found}. Fix: {finding.fix}."
    found: dict[str, Any] = {
        "ruleId": RULES[finding.rule].slug,
        "level": LEVELS[finding.kind],
        "message": {"text": text},
        "locations": [_location(step, finding)],
        "partialFingerprints": {
            "capturable/v1": sha256("\n".join(key_of(finding)).encode()).hexdigest()[:32]
        },
    }
    if finding.inside:
        found["message"]["text"] = f"{text} In a library: {finding.inside}."
    return found


def _location(step: str, finding: Finding) -> dict[str, Any]:
    where: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": step}]}
    if finding.number:
        file = {"uri": quote(short(finding.file).replace("\\", "/"))}
        region = {"startLine": finding.number}
        where["physicalLocation"] = {"artifactLocation": file, "region": region}
    return where


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}


def junit(checked: Iterable[Checked]) -> str:
    """A JUnit report: a test case for each step, a failure for one with faults."""
    suite = ElementTree.Element("testsuite", name="capturable")
    steps = list(checked)
    for one in steps:
        where, _, name = one.step.rpartition(":")
        case = ElementTree.SubElement(suite, "testcase", classname=where, name=name)
        if one.error:
            ElementTree.SubElement(case, "error", message=one.error)
        elif one.findings.faults:
            failure = ElementTree.SubElement(case, "failure", message=one.findings.summary)
            failure.text = str(one.findings)
    suite.set("tests", str(len(steps)))
    suite.set("errors", str(sum(bool(one.error) for one in steps)))
    suite.set("failures", str(sum(not one.error and bool(one.findings.faults) for one in steps)))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
