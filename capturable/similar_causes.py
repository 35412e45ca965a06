"""Which causes a text is about that quotes no known message, by the words that it shares with
them."""

import math
import re
from collections import Counter
from functools import cache

from capturable.causes import Entry, entries, symptoms

LINE = re.compile(r"error|exception|fail|assert|warn|cuda|captur|graph|nccl|replay", re.I)
ABOUT = re.compile(  # else a text may be about anything that is called a graph
    r"captur(?!e_sizes)|(cuda|hip)[ _/.-]?graph(?!ic|\w*['\"]:)|\bcuGraph(Launch|Exec|Instant|Add)"
    r"|graphed|replay|stream|AccumulateGrad"
    r"|reduce-overhead|max-autotune(?!-no)|enforce[-_]eager(?!=False)|\beager mode"
    r"|sleep[ _](mode|level)|\bsleep\(|wake_up\(|release_memory_occupation"
    r"|\brecorded (forward|backward|step|region|graph|pass|function|model)\b"
    r"|\b(eager|pools?|weights?|data_ptr)\b.*\bgraphs?\b|\bgraphs?\b.*\b(eager|pools?|weights?|data_ptr)\b",
    re.I,
)
NAMED = re.compile(  # a text that speaks of these needs little likeness; a setting's name does not
    r"(cuda|hip)[ _/.-]?graph(?!ic|\w*['\"]:|s?(_|=False))|cudagraph_trees|reduce-overhead|graphed"
    r"|max-autotune(?!-no)"
    r"|\bcuGraph(Launch|Exec|Instant|Add)|\b(stream|graph) captur|captured (model|step|forward)\b"
    r"|captur(es?|ed|ing) (\d+ )?graphs?\b|@captured\b|\.replay\(|ScopedCapture|capture_begin",
    re.I,
)
FIELD = re.compile(  # and one of these, for what else is captured or replayed
    r"graph|cuda|\bhip|gpu|nccl|rccl|kernel|torch|tensor|triton|vllm|sglang|megatron|autograd|inductor"
    r"|gradient|optimizer|allocator|all.?reduce|dropout|manual_seed|\b(DDP|FSDP\d?)\b|\bweights?\b|\bmodel\b"
    r"|\bstep\b|forward|\beager|nvidia|\.replay\(|LSTM|norm\b|decod|logits|\bloss\b|epoch|pinned"
    r"|predict|param_groups|launch|_capture\b|static|collective|unjoined|sleep|cumem",
    re.I,
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
SATURATED, LONG = 1.0, 0.4  # BM25: k1 and b
SCALE = 0.03  # and its weight beside that of symptoms
ALIKE = 0.36  # the least likeness: further down most guesses are wrong
LITTLE = 0.4  # of that is enough for a text that names a CUDA graph
LESS = 0.4  # of the best likeness: what is less alike is left out
SYMPTOM = 0.06  # what a symptom adds to the likeness of its causes
USUAL = 0.14  # and adds to that of the first, the usual one, besides
TYPED = 9  # words at most, and no colon: a symptom in words, not a line of a log
ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "s", "e")
PLAIN = re.findall(
    r"\w+",
    """a about after all an and any are as at be been before but by can did do does down each else for from had has
have how if in into is it its may more most must no not of off on once one only or other our out over own same should
so some such than that the their them then there these they this those to too under until up was we were what when
where which while who will with without would you your am anything doing me my something we""",
)


def nearest(text: str, count: int = 5) -> list[Entry]:
    """For a text without a known message: the causes whose description is most like it, the best
    first; [] if none is.

    Rare words count more than common ones (BM25), and causes of a symptom that the text tells of
    more than others, its usual cause most; a text longer than a typed symptom must mention a capture
    or a replay, and a graph, a GPU or the like. One that is much less alike than the best is left
    out.
    """
    lines = [line[:LENGTH] for line in text.splitlines()]
    suspected = _suspected("\n".join(lines))
    typed = bool(suspected) and len(text.split()) <= TYPED and ":" not in text
    if not FIELD.search(text) or not (typed or any(map(ABOUT.search, lines))):
        return []
    telling = lines if len(lines) <= LINES else list(filter(LINE.search, lines))[-LINES:]
    asked = set(_words("\n".join(telling)))
    rated = []
    for entry, weights in zip(entries(), _known(), strict=True):
        if entry.kind in GUESSED and _named(entry, text):
            alike = sum(weights[word] for word in asked & weights.keys())
            rated.append((alike + suspected.get(entry.title, 0), entry))
    rated.sort(key=lambda pair: -pair[0])
    if rated[0][0] < ALIKE * (LITTLE if any(map(NAMED.search, lines)) else 1):
        return []
    return [entry for alike, entry in rated[:count] if alike >= rated[0][0] * LESS]


def _named(entry: Entry, text: str) -> bool:
    """Whether a text speaks of the product that a cause belongs to, if it belongs to one."""
    product = next((name for name in PRODUCTS if re.match(rf"{name}\b", entry.title)), None)
    return product is None or bool(re.search(PRODUCTS[product], text, re.I))


def _suspected(text: str) -> dict[str, float]:
    """What the symptoms that the text tells of, such as a hang, old values or memory, add to the
    likeness of their causes, by title."""
    adds: dict[str, float] = {}
    for symptom in symptoms():
        if re.search(symptom.words, text, re.I) and re.search(symptom.near, text, re.I):
            for title in symptom.causes:
                add = SYMPTOM + (USUAL if title == symptom.causes[0] else 0)
                adds[title] = max(add, adds.get(title, 0))
    return adds


@cache
def _known() -> list[dict[str, float]]:
    """How much each word of the description of each cause adds to the likeness (BM25)."""
    texts = [[*[e.title] * 3, *e.messages, e.cause, e.tell, e.fix, e.words] for e in entries()]
    counts = [Counter(_words("\n".join(text))) for text in texts]
    common = Counter(word for count in counts for word in count)
    weights = {word: SCALE * math.log(len(counts) / times) for word, times in common.items()}
    usual = sum(count.total() for count in counts) / len(counts)
    known = []
    for count in counts:
        less = SATURATED * (1 - LONG + LONG * count.total() / usual)
        known.append(
            {
                word: weights[word] * times * (1 + SATURATED) / (times + less)
                for word, times in count.items()
            }
        )
    return known


def _words(text: str) -> list[str]:
    """The words of a text: names are split, endings and the plainest words left out."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower()
    return [_stem(word) for word in re.findall(r"[a-z]{2,}", text) if word not in PLAIN]


def _stem(word: str) -> str:
    ending = next((end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= 3), "")
    return word[: len(word) - len(ending)]
