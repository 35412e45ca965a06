"""Run programs and say how they end."""

import gc
import warnings

import torch

PROGRAMS = {}


def program(gives, shows=None, refused=None):
    """Register a function as a program: what it should give, and the gallery's exhibit that it
    shows.

    gives: the value, or the start of the first line of the error, or of each in the chain.
    refused: what the stand-in names in its refusal, if it does not model the program.
    """

    def register(function):
        assert function.__name__ not in PROGRAMS, function.__name__
        function.gives = gives
        function.shows, function.refused = shows, refused
        PROGRAMS[function.__name__] = function
        return function

    return register


def programs(refused=None, **rows):
    """Register a program for each row: what it should give, a function that gives it, and perhaps
    the gallery's exhibit that it shows.
    """
    for name, (gives, function, *shows) in rows.items():

        def run(function=function):
            return function()

        run.__name__ = name
        program(gives, *shows, refused=refused)(run)


def said(call):
    """The type of the error that a call ends with, and its first line up to the first bracket."""
    try:
        call()
    except Exception as error:
        if type(error).__name__ == "NotModelled":
            raise
        return f"{type(error).__name__}: {first_line(error).partition(' (')[0]}"
    return "no error"


def runs(function):
    """How a program ends: {"gives": value} or {"fails":
    [first line of each error, the cause first]}.
    """
    torch.manual_seed(0)
    stream = torch.cuda.current_stream()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function()
        return {"gives": plain(value)}
    except Exception as error:
        return {"fails": [f"{type(e).__name__}: {first_line(e)}" for e in chain(error)]}
    finally:
        torch.cuda.set_stream(stream)


def plain(value):
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    assert isinstance(value, bool | int | str) or value == int(value), (
        f"{value} is no relation and no whole number"
    )
    return value if isinstance(value, bool | str) else int(value)


def chain(error):
    return ([] if error.__context__ is None else chain(error.__context__)) + [error]


def first_line(error):
    return (str(error).splitlines() or [""])[0]


def outcome(name):
    """How a program ends on the stand-in.

    Nothing is collected meanwhile: a graph of the program's that is garbage would break a capture,
    as on a GPU, or not, depending on what ran before.
    """
    from cpu_graph import cpu_graphs

    gc.collect()
    gc.freeze()  # the next collection looks only at what this program leaves
    gc.disable()
    try:
        with cpu_graphs():
            return runs(PROGRAMS[name])
    finally:
        gc.enable()


def on_gpu(names):
    """How these programs end on this machine's GPU, each after a good capture, which sets
    generators right: the name of each with None before it runs, and with its ending.
    """
    for name in names:
        # a new one, or a program's 32nd stream might be this one
        torch.cuda.graph.default_capture_stream = None
        yield name, None
        yield name, runs(PROGRAMS[name])
        gc.collect()
        torch.cuda.synchronize()
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            torch.zeros(1, device="cuda")


def agrees(gives, ending):
    """Whether a program ends as it says."""
    if "kills" in ending:
        return False
    if "gives" in ending:
        return ending["gives"] == gives and type(ending["gives"]) is type(gives)
    fails = ending["fails"]
    return (
        isinstance(gives, list)
        and len(gives) == len(fails)
        and all(map(str.startswith, fails, map(str, gives)))
    )
