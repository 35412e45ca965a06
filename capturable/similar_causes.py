"""Which causes a text is about that quotes no known message, by the words that it shares with
them."""

import math
import re
from collections import Counter
from functools import cache

from capturable.causes import Entry, entries, symptoms

LINE = re.compile(r"error|exception|fail|assert|warn|cuda|captur|graph|nccl|replay", re.I)
ABOUT = re.compile(  # else a text may be about anything that is called a graph
    r"captur|(cuda|hip)[ _/.-]?graph|graphed|replay|stream|AccumulateGrad|reduce-overhead"
    r"|sleep[ _](mode|level)|\bsleep\(|wake_up\(|release_memory_occupation"
    r"|\brecorded (forward|backward|step|region|graph|pass|function|model)\b"
    r"|\b(eager|pools?|weights?|data_ptr)\b.*\bgraphs?\b|\bgraphs?\b.*\b(eager|pools?|weights?|data_ptr)\b",
    re.I,
)
FIELD = re.compile(  # and one of these, for what else is captured or replayed
    r"graph|cuda|\bhip|gpu|nccl|rccl|kernel|torch|tensor|triton|vllm|sglang|megatron|autograd|inductor"
    r"|gradient|optimizer|allocator|all.?reduce|dropout|manual_seed|\b(DDP|FSDP\d?)\b|\bweights?\b|\bmodel\b"
    r"|\bstep\b|forward|\beager|nvidia|\.replay\(|LSTM|norm\b|decod|logits|\bloss\b|epoch|pinned"
    r"|predict|param_groups|launch|_capture\b|static|collective|unjoined|sleep|cumem",
    re.I,
)
APART = re.compile(  # what CUDA says of a kernel or its build, with and without graphs
    r"no kernel image is available|NoBinaryForGpu|too many resources requested|misaligned address|launch timed out",
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
    "Transformer Engine": r"transformer.?engine|\bTE\b|\bte\.|amax|fp8.{0,80}(microbatch|autocast|cache)",
    "Triton": r"triton",
    "torch.compile": r"compil|inductor|dynamo|reduce-overhead|cudagraph[ s_]|aot_eager|skip\w* due|dynamic shape",
    "vLLM": r"vllm",
}
LINES = 30  # of a long text, its last telling lines are read
LENGTH = 1000  # and of each the beginning
UNKNOWN = 0.7  # of the rarest word's weight: a word that no cause has, such as a product's name
ALIKE = 0.16  # the least likeness, from 0 to 1: further down most guesses are wrong
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

    Rare words count more than common ones (tf-idf, cosine), and causes of a symptom that the text
    tells of more than others, its usual cause most; a text longer than a typed symptom must mention
    a capture or a replay, and a graph, a GPU or the like. One that is much less alike than the best
    is left out.
    """
    lines = [line[:LENGTH] for line in text.splitlines()]
    suspected = _suspected("\n".join(lines))
    typed = bool(suspected) and len(text.split()) <= TYPED and ":" not in text
    if APART.search(text) or not FIELD.search(text) or not (typed or any(map(ABOUT.search, lines))):
        return []
    telling = lines if len(lines) <= LINES else list(filter(LINE.search, lines))[-LINES:]
    asked = set(_words("\n".join(telling)))
    weights, known = _known()
    unknown = UNKNOWN * max(weights.values())
    length = math.sqrt(sum(weights.get(word, unknown) ** 2 for word in asked)) or 1
    rated = []
    for entry, vector in zip(entries(), known, strict=True):
        if entry.kind not in GUESSED or not _named(entry, text):
            continue
        shared = asked & vector.keys()
        alike = sum(weights[word] * vector[word] for word in shared) / length
        alike += suspected.get(entry.title, 0)
        if (len(shared) > 1 or entry.title in suspected) and alike >= ALIKE / 2:
            rated.append((alike, entry))
    rated.sort(key=lambda pair: -pair[0])
    if not rated or rated[0][0] < ALIKE:
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
def _known() -> tuple[dict[str, float], list[dict[str, float]]]:
    """How much each word weighs, and the description of each cause as a vector of length 1."""
    texts = [[*[e.title] * 3, *e.messages, e.cause, e.tell, e.fix, e.words] for e in entries()]
    counts = [Counter(_words("\n".join(text))) for text in texts]
    common = Counter(word for count in counts for word in count)
    weights = {word: math.log(len(counts) / times) for word, times in common.items()}
    vectors = [
        {word: weights[word] * (1 + math.log(times)) for word, times in count.items()}
        for count in counts
    ]
    lengths = [
        math.sqrt(sum(value * value for value in vector.values())) or 1 for vector in vectors
    ]
    return weights, [
        {word: value / length for word, value in vector.items()}
        for vector, length in zip(vectors, lengths, strict=True)
    ]


def _words(text: str) -> list[str]:
    """The words of a text: names are split, endings and the plainest words left out."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower()
    return [_stem(word) for word in re.findall(r"[a-z]{2,}", text) if word not in PLAIN]


def _stem(word: str) -> str:
    ending = next((end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= 3), "")
    return word[: len(word) - len(ending)]
