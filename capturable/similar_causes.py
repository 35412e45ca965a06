"""Which causes a text is about that quotes no known message, by the words that it shares with
them."""

import json
import math
import re
from collections import Counter
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from capturable.causes import Complaint, Entry, complaints, entries

LINE = re.compile(r"error|exception|fail|assert|warn|cuda|captur|graph|nccl|replay", re.I)
NAMED = re.compile(  # a CUDA graph, its capture or its replay
    r"captur|(cuda|hip|acl)[ _/.-]?graph(?!ic)|graphed|graph[. ]replay|graph_?pool|graph recording"
    r"|graph mode|FULL_(AND_PIECEWISE|DECODE_ONLY)"
    r"|reduce-overhead|max-autotune(?!-no)|replay\w* (\w+ ){0,4}graph",
    re.I | re.A,
)
REQUEST = re.compile(  # how a text begins that asks for something
    r"^[\s\[(#*]*(feature|feat|fea|rfc|roadmap|epic|proposal|usage|discussion|docs?|support|add|enable"
    r"|implement|allow|investigate|consider|take advantage|option to)\b",
    re.I | re.A,
)
GUESSED = ("error", "warning", "silent")  # kinds of causes; the others say that there are many
PRODUCTS = {  # a cause that begins with such a name is guessed where the text names the product
    "A CTC loss": r"ctc",
    "Adam": r"optim|adam",
    "An optimizer": r"optim|adam|\bsgd",
    "DDP": r"\bddp\b|DistributedDataParallel|distributed",
    "Megatron": r"megatron|check_for_nan_in",
    "ONNX Runtime": r"onnx",
    "TensorRT": r"tensorrt|\btrt|nvinfer",
    "Transformer Engine": r"transformer.?engine|\bTE\b|\bte\.|amax|fp8_weight|fp8.{0,80}(microbatch|autocast|cache)",
    "Triton": r"triton",
    "XLA": r"\bxla|\bjax|command.?buffer",
    "torch.compile": r"compil|inductor|dynamo|reduce-overhead|cudagraph[ s_]|aot_eager|skip\w* due|dynamic shape",
    "vLLM": r"vllm",
}
LINES = 30  # of a long text, its last telling lines are read
LENGTH = 1000  # and of each the beginning
DESCRIBED = 30, 0.4  # what a word of a description weighs, and BM25's b
REPORTED = 20, 0.8  # and one of a report
LESS = 0.5  # of the best likeness: what is less alike is left out
RARE = 0.0025  # a share of texts: what is seen less often says little
SEEN = 4  # texts at least: a term of fewer says nothing
LIKELY = 40  # the least evidence for a guess
TYPED = 9  # words at most, and no colon: a complaint that somebody typed, not a line of a log
UNCLEAR = ("this", "a capture that fails")  # complaints of anything that fails
ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "s", "e")
PLAIN = set(
    re.findall(
        r"\w+",
        """a about after all an and any are as at be been before but by can did do does down each else for from had has
have how if in into is it its may more most must no not of off on once one only or other our out over own same should
so some such than that the their them then there these they this those to too under until up was we were what when
where which while who will with without would you your am anything doing me my something we""",
    )
)


def nearest(text: str, count: int = 5) -> list[Entry]:
    """For a text without a known message: the causes whose description and reports are most like
    it, the best first; [] if its words are more those of texts about something else.

    A cause that is much less alike than the best is left out.
    """
    if not tells_of_a_graph(text):
        return []
    rated = _rated(text)
    return [entry for alike, entry in rated[:count] if alike >= rated[0][0] * LESS]


def tells_of_a_graph(text: str) -> bool:
    """Whether a text tells of a failure of a CUDA graph, by its words (naive Bayes). A typed
    complaint, such as "same dropout each time", always does; a request never does."""
    if REQUEST.search(text):
        return False
    if len(text.split()) <= TYPED and ":" not in text and complaint(text) not in UNCLEAR:
        return True
    terms, known = _terms(text), evidence()
    return sum(known.get(term, 0) for term in terms) > LIKELY * math.sqrt(len(terms))


def _terms(text: str) -> set[str]:
    """Words, pairs of them, and whether a CUDA graph is named."""
    words = _words(_read(text))
    named = "(graph)" if NAMED.search(text) else "(no graph)"
    return {*words, *map(" ".join, pairwise(words)), named}


def complaint(text: str) -> str:
    """What a text complains of, such as wrong results or a hang."""
    return " and ".join(one.title for one in _complaints(text)) or "this"


def of_complaint(text: str, count: int = 18) -> list[Entry]:
    """The causes of what a text complains of, and of the products that it names, those first that
    it is most like."""
    causes = {title for one in _complaints(text) or complaints() for title in one.causes}
    rated = [entry for _, entry in _rated(text)]
    return [entry for entry in rated if entry.title in causes or _product(entry.title)][:count]


def _complaints(text: str) -> list[Complaint]:
    read = "\n".join(_lines(text))
    return [one for one in complaints() if re.search(one.words, read, re.I | re.A)]


def _read(text: str) -> str:
    """Of a long text the last telling lines, of a short one all."""
    lines = _lines(text)
    return "\n".join(lines if len(lines) <= LINES else list(filter(LINE.search, lines))[-LINES:])


def _lines(text: str) -> list[str]:
    return [line[:LENGTH] for line in text.splitlines()]


def _rated(text: str) -> list[tuple[int, Entry]]:
    """All causes and how much the text is like each, the best first.

    Rare words count more than common ones (BM25).
    """
    asked = set(_words(_read(text)))
    rated = []
    for entry, weight in zip(guessable(), weights(), strict=True):
        if _named(entry, text):
            alike = sum(weight[word] for word in asked & weight.keys())
            rated.append((alike, entry))
    return sorted(rated, key=lambda pair: -pair[0])


def guessable() -> list[Entry]:
    """The causes that may be guessed; the other entries say that a message has many."""
    return [entry for entry in entries() if entry.kind in GUESSED]


def _named(entry: Entry, text: str) -> bool:
    """Whether a text speaks of the product that a cause belongs to, if it belongs to one."""
    product = _product(entry.title)
    return not product or bool(re.search(PRODUCTS[product], text, re.I | re.A))


@cache
def _product(title: str) -> str:
    """The product that a cause belongs to, or ""."""
    return next((name for name in PRODUCTS if re.match(rf"{name}\b", title)), "")


def reports() -> list[dict[str, Any]]:
    """Public reports, each with its text, the thread it is from and the titles of its causes."""
    return json.loads(Path(__file__).with_name("reports.json").read_text(encoding="utf-8"))


def no_failures() -> list[str]:
    """Texts that are no failure of a CUDA graph, though some mention one."""
    return json.loads(Path(__file__).with_name("no_failures.json").read_text(encoding="utf-8"))


@cache
def evidence() -> dict[str, int]:
    """How much each term speaks for a failure of a graph: the logarithm of how many times as many
    reports have it as other texts, times 100."""
    failures = [_terms(report["text"]) for report in reports()]
    others = [_terms(text) for text in no_failures()]
    often, elsewhere = Counter(chain(*failures)), Counter(chain(*others))
    return {
        term: round(
            100
            * math.log(
                (often[term] / len(failures) + RARE) / (elsewhere[term] / len(others) + RARE)
            )
        )
        for term, count in (often + elsewhere).items()
        if count >= SEEN
    }


@cache
def weights() -> list[dict[str, int]]:
    """How much each word adds to the likeness of each guessable cause: what its description and
    the reports of it weigh together."""
    described = [_words("\n".join(_description(entry))) for entry in guessable()]
    reported: dict[str, list[str]] = {entry.title: [] for entry in guessable()}
    for report in reports():
        for title in reported.keys() & report["causes"]:
            reported[title] += set(_words(report["text"]))
    known = zip(
        _bm25(described, *DESCRIBED), _bm25(list(reported.values()), *REPORTED), strict=True
    )
    return [
        {word: round(one[word] + other[word]) for word in one.keys() | other.keys()}
        for one, other in known
    ]


def _description(entry: Entry) -> list[str]:
    return [*[entry.title] * 3, *entry.messages, entry.cause, entry.tell, entry.fix, entry.words]


def _bm25(texts: list[list[str]], scale: float, long: float) -> list[Counter[str]]:
    """What each word of each text adds to its likeness (BM25): rare words weigh more than common
    ones, and words of a long text less."""
    counts = list(map(Counter, texts))
    common = Counter(word for count in counts for word in count)
    known = sum(map(bool, counts))
    usual = sum(map(len, texts)) / known
    weighed = []
    for text, count in zip(texts, counts, strict=True):
        less = 1 - long + long * len(text) / usual
        weight = {word: scale * math.log(known / common[word]) for word in count}
        weighed.append(
            Counter({word: weight[word] * 2 * n / (n + less) for word, n in count.items()})
        )
    return weighed


def _words(text: str) -> list[str]:
    """The words of a text: names are split, endings and the plainest words left out."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower()
    return [_stem(word) for word in re.findall(r"[a-z]{2,}", text) if word not in PLAIN]


def _stem(word: str) -> str:
    ending = next((end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= 3), "")
    return word[: len(word) - len(ending)]
