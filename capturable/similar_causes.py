"""Which causes a text is about that quotes no known message, by the words that it shares with
their descriptions."""

import math
import re
from collections import Counter
from functools import cache

from capturable.causes import CauseEntry, ComplaintKind, complaints, entries

NAMED = re.compile(  # a CUDA graph, its capture or its replay
    r"captur|(cuda|hip|acl)[ _/.-]?graph(?!ic)|graphed|graph[. ]replay|graph_?pool|graph recording"
    r"|graph mode|FULL_(AND_PIECEWISE|DECODE_ONLY)"
    r"|reduce-overhead|max-autotune(?!-no)|replay\w* (\w+ ){0,4}graph",
    re.I | re.A,
)
REPORTED = re.compile(  # a line of a log in which all is well
    r"\b(INFO|DEBUG|WARNING|NOTE)\b|_config=|_config\b.*[{(]|Namespace\(|\bconfig=\{|\d+%\|", re.A
)
FIXED = re.compile(
    r"\b(bug\w*|fix\w*|issue|broken|breaks?|wrong\w*|do(es)? not|cannot|can't)\b", re.I | re.A
)
REQUEST = re.compile(  # how a text begins that asks for something
    r"^[\s\[(#*]*(feature|feat|fea|rfc|roadmap|epic|proposal|usage|discussion|docs?|support|add|enable"
    r"|implement|allow|investigate|consider|take advantage|option to|perf|optimi[sz]e|improve|is there)\b"
    r"|feature request",
    re.I | re.A,
)
FIELD = re.compile(r"cuda|gpu|graph|kernel|tensor|torch|model|nccl|hip|driver", re.I)
NO_ERROR = re.compile(r"\b(no|without( an?)?) (error|exception)s?\b|silently", re.I | re.A)
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
SCALE, LONG = 30, 0.4  # what a word of a description weighs, and BM25's b
LESS = 0.5  # of the best likeness: what is less alike is left out
LEAST = 100  # the least likeness for a guess
TYPED = 9  # words at most, and no colon: a complaint that somebody typed, not a line of a log
UNCLEAR = ("this", "a capture that fails")  # complaints of anything that fails


def nearest(text: str, count: int = 5) -> list[CauseEntry]:
    """For a text without a known message: the causes whose description is most like it, the best
    first; [] if it does not tell of a graph.

    A cause that is much less alike than the best is left out.
    """
    if not tells_of_graph_failure(text):
        return []
    quiet = bool(NO_ERROR.search(text))  # then no cause that raises an error
    rated = [
        (alike, entry)
        for alike, entry in _rated(text)
        if alike >= LEAST and not (quiet and entry.kind == "error")
    ]
    return [entry for alike, entry in rated[:count] if alike >= rated[0][0] * LESS]


def tells_of_graph_failure(text: str) -> bool:
    """Whether a text tells of a failure of a CUDA graph: it names a graph, and complains. A typed
    complaint, such as "same dropout each time", always does; a request never does."""
    if REQUEST.search(text):
        return False
    if len(text.split()) <= TYPED and ":" not in text and complaint_text(text) not in UNCLEAR:
        return True
    said = "\n".join(line for line in text.splitlines() if not REPORTED.search(line))
    if not FIELD.search(said):
        return False
    return bool(NAMED.search(said)) and (bool(_complaints_in(said)) or bool(FIXED.search(said)))


def complaint_text(text: str) -> str:
    """What a text complains of, such as wrong results or a hang."""
    return " and ".join(one.title for one in _complaints_in(text)) or "this"


def sort_by_likeness(text: str, some: list[CauseEntry], message: str) -> list[CauseEntry]:
    """Some causes, those first that the text beside its message is most like; as they are where it
    is like none."""
    asked = set(_words(text)) - set(_words(message))
    known = dict(zip(guessable_causes(), bm25_weights(), strict=True))
    return sorted(some, key=lambda entry: -sum(known.get(entry, {}).get(word, 0) for word in asked))


def causes_of_complaint(text: str, count: int = 18) -> list[CauseEntry]:
    """The causes of what a text complains of, and of the products that it names, those first that
    it is most like."""
    causes = {title for one in _complaints_in(text) or complaints() for title in one.causes}
    rated = [entry for _, entry in _rated(text)]
    return [entry for entry in rated if entry.title in causes or _product_of(entry.title)][:count]


def _complaints_in(text: str) -> list[ComplaintKind]:
    return [one for one in complaints() if re.search(one.words, text, re.I | re.A)]


def _rated(text: str) -> list[tuple[int, CauseEntry]]:
    """All causes and how much the text is like each, the best first.

    Rare words count more than common ones (BM25).
    """
    asked = set(_words(text))
    rated = []
    for entry, weight in zip(guessable_causes(), bm25_weights(), strict=True):
        if _mentions_product(entry, text):
            alike = sum(weight[word] for word in asked & weight.keys())
            rated.append((alike, entry))
    return sorted(rated, key=lambda pair: -pair[0])


def guessable_causes() -> list[CauseEntry]:
    """The causes that may be guessed; the other entries say that a message has many."""
    return [entry for entry in entries() if entry.kind in GUESSED]


def _mentions_product(entry: CauseEntry, text: str) -> bool:
    """Whether a text speaks of the product that a cause belongs to, if it belongs to one."""
    product = _product_of(entry.title)
    return not product or bool(re.search(PRODUCTS[product], text, re.I | re.A))


@cache
def _product_of(title: str) -> str:
    """The product that a cause belongs to, or ""."""
    return next((name for name in PRODUCTS if re.match(rf"{name}\b", title)), "")


@cache
def bm25_weights() -> list[dict[str, int]]:
    """How much each word adds to the likeness of each guessable cause (BM25): rare words weigh more
    than common ones, and words of a long description less."""
    counts = [Counter(_words("\n".join(_text_fields(entry)))) for entry in guessable_causes()]
    common = Counter(word for count in counts for word in count)
    usual = sum(count.total() for count in counts) / len(counts)
    return [
        {
            word: round(_idf(common[word], len(counts)) * _tf_weight(n, count.total() / usual))
            for word, n in count.items()
        }
        for count in counts
    ]


def _idf(known: int, of: int) -> float:
    """The weight of a word that so many descriptions have."""
    return SCALE * math.log(of / known)


def _tf_weight(times: int, length: float) -> float:
    """How much it counts that a word stands in a description so often."""
    return 2 * times / (times + 1 - LONG + LONG * length)


def _text_fields(entry: CauseEntry) -> list[str]:
    return [*[entry.title] * 3, *entry.messages, entry.cause, entry.tell, entry.fix, entry.words]


def _words(text: str) -> list[str]:
    """The words of a text, and those in its names."""
    return re.findall(r"[a-z]{2,}", re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower())
