"""Load the step that a command line names, from a script, a package or a module, as Python itself
would.

Every failure is a LoadError: one sentence that says what to change.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from capturable.findings import Findings, short_path

MISFIT = (
    "the function returns neither a step nor (step, inputs) nor (step, inputs, other_inputs, ...); "
    "inputs are a tuple of arguments, or a dict of keyword arguments"
)
NO_GPU = (  # in torch's messages on a machine without one
    "not compiled with CUDA",
    "no NVIDIA driver",
    "No CUDA GPUs are available",
    "driver version is insufficient",
)


class LoadError(Exception):
    """What keeps a step from being loaded or run, in one sentence. cause: the error behind it,
    if there is one."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class LoadedStep(NamedTuple):
    """A step and its inputs; other_inputs and other_kwargs are None without a second batch."""

    step: Callable
    inputs: tuple = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    other_inputs: tuple | None = None
    other_kwargs: dict[str, Any] | None = None

    def preflight(self, **options: Any) -> Findings:
        """What preflight finds in the step."""
        from capturable.preflight import preflight

        options |= {"other_inputs": self.other_inputs, "other_kwargs": self.other_kwargs}
        return preflight(self.step, *self.inputs, kwargs=self.kwargs, **options)


def load(target: str, arguments: list[str]) -> LoadedStep:
    """The step and the batches that a function returns; arguments: as for load_function."""
    return _loaded_step(load_function(target, arguments)())


def load_function(target: str, arguments: list[str]) -> Callable[[], Any]:
    """The function that FILE:FUNCTION or MODULE:FUNCTION names, whose errors become LoadErrors; the
    script finds arguments in sys.argv."""
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise LoadError(f"{target!r} is not FILE:FUNCTION or MODULE:FUNCTION")
    is_file = where.endswith(".py") or "/" in where
    if is_file and not Path(where).is_file():
        raise LoadError(f"there is no file {where}: FILE:FUNCTION names one")
    _add_to_path(Path.cwd())
    sys.argv = [where, *arguments]
    importing = _import_file if is_file else _import_module
    module = call_or_load_error(f"loading {where}", importing, where)
    try:
        make = attrgetter(name)(module)
    except AttributeError:
        raise LoadError(f"{where} has no function {name}") from None
    _check_function(where, name, make)
    return partial(call_or_load_error, f"{name}()", make)


def call_or_load_error(what: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call the function; what it raises becomes a LoadError that names the line."""
    try:
        return function(*args, **kwargs)
    except LoadError:
        raise
    except SystemExit as error:
        reason = f"ended the program{_raised_at(error)}{_exit_reason(error)}"
        raise LoadError(f"{what} {reason}", error) from None
    except StopIteration as error:
        reason = "an iterator ran dry: the step runs several times, so give it batches that last"
        raise LoadError(f"{what} failed{_raised_at(error)}: {reason}", error) from None
    except SyntaxError as error:
        place = f"{short_path(error.filename or what)}:{error.lineno}"
        raise LoadError(f"{place}: {error.msg}", error) from None
    except Exception as error:
        error = root_error(error)
        raise LoadError(f"{what} failed{_raised_at(error)}: {_error_text(error)}", error) from None


def root_error(error: Exception) -> Exception:
    """The error behind that of a lost capture, which only says that there was one."""
    lost = "previous error during capture" in str(error)
    return error.__context__ if lost and isinstance(error.__context__, Exception) else error


def asks_for_a_gpu(error: LoadError) -> bool:
    """Whether a step was not run because there is no GPU."""
    return any(sign in str(error.cause) for sign in NO_GPU)


def _error_text(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    said = f"{type(error).__name__}: {text[:300]}"
    if any(sign in text for sign in NO_GPU):
        return f"there is no GPU here: let the function choose the device ({said[:120]})"
    return said


def _exit_reason(error: SystemExit) -> str:
    """How a script ended the program."""
    if isinstance(error.code, int):
        hint = "; arguments for the script go behind --" if error.code == 2 else ""
        return f" with status {error.code}{hint}"
    return f": {error.code}" if error.code else ""


def _raised_at(error: BaseException) -> str:
    """Where an error was raised: the innermost line that is not a library's."""
    from capturable.user_lines import owner_of_file  # imports torch, which not every command needs

    own = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if owner_of_file(frame.f_code.co_filename, frame.f_globals.get("__name__", "")) == "user"
    ]
    return f" at {short_path(own[-1][0])}:{own[-1][1]}" if own else ""


def _check_function(where: str, name: str, make: Any) -> None:
    if not callable(make):
        raise LoadError(f"{where}: {name} is no function")
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    if needed:
        raise LoadError(
            f"{name} needs {', '.join(needed)}: name a function without arguments that makes a step"
        )


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise LoadError(f"there is no module {name} here or among the installed ones") from None
        raise


def _import_file(file: str) -> ModuleType:
    """Import a module of a package under its name there; run another file anew, as a script."""
    path = Path(file).resolve()
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) > 1:
        _add_to_path(folder)
        return importlib.import_module(".".join(names))
    _add_to_path(folder, last=path.stem in sys.stdlib_module_names)
    taken = path.stem in sys.stdlib_module_names or path.stem in sys.modules
    return _exec_module(path, f"{path.stem}_to_check" if taken else path.stem)


def _exec_module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _add_to_path(folder: Path, last: bool = False) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(len(sys.path) if last else 0, str(folder))


def _loaded_step(made: Any) -> LoadedStep:
    """The step and its batches of what the function returned."""
    if inspect.iscoroutine(made) or inspect.isgenerator(made):
        made.close()  # else Python says that nobody awaited it
        kind = "async" if inspect.iscoroutine(made) else "a generator"
        raise LoadError(f"{made.__name__} is {kind}: name a plain function that returns the step")
    if callable(made):
        return LoadedStep(made)
    match made:
        case (step,) if callable(step):
            return LoadedStep(step)
        case (step, inputs) if callable(step):
            return LoadedStep(step, *args_and_kwargs(inputs))
        case (step, inputs, others, *_) if callable(step):
            both = args_and_kwargs(others) if others is not None else (None, None)
            return LoadedStep(step, *args_and_kwargs(inputs), *both)
    raise LoadError(MISFIT)


def args_and_kwargs(inputs: Any) -> tuple[tuple, dict[str, Any]]:
    """Positional and keyword arguments of a batch."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if hasattr(inputs, "requires_grad"):  # a single tensor
        return (inputs,), {}
    raise LoadError(MISFIT)
