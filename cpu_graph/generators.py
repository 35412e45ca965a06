"""Random numbers "on the GPU": a CPU generator that knows about captures.

In a capture nothing is drawn: states are numbered from 0, and each operator that draws leads from
one number to the next. A replay begins with the generator's state as number 0.
"""

import torch

from cpu_graph import errors
from cpu_graph.errors import NotModelled, not_modelled_stub, torch_error

Real: type[torch.Generator] = torch.Generator


class Generator(Real):
    """A torch.Generator on "cuda"; for other devices, torch's own."""

    stand_in = None  # the device of the stand-in in force

    def __new__(cls, device="cpu"):
        if torch.device(device).type != "cuda":
            return Real(device)
        if cls.stand_in and cls.stand_in.capturing():
            raise torch_error(errors.NEW_GENERATOR)
        generator = super().__new__(cls, "cpu")
        # the capture that it believes in, and the state there
        generator.capture, generator.number = None, 0
        Real.manual_seed(generator, 67280421310721)
        return generator

    @property
    def device(self):
        return torch.device("cuda", 0)

    def raw_state(self):
        return Real.get_state(self)

    def set_raw_state(self, state):
        Real.set_state(self, state)

    def get_state(self):
        state = self.raw_state()
        if self.stand_in.capturing():
            state.number_in_capture = self.stand_in.capture, self.number
        return state

    def set_state(self, state):
        if not self.stand_in.capturing():
            self.stand_in.drawn = set()
            self.set_raw_state(state)
        else:
            capture, number = getattr(state, "number_in_capture", (None, None))
            if capture is not self.stand_in.capture:
                raise NotModelled(
                    "A random state taken outside a capture and set inside it is not modelled."
                )
            self.number = number
        return self

    def manual_seed(self, seed):
        if not self.stand_in.capturing():
            self.stand_in.drawn = set()
            Real.manual_seed(self, seed)
        elif seed != self.initial_seed():
            raise torch_error(errors.SEED)
        return self

    def seed(self):
        if self.stand_in.capturing():
            raise torch_error(errors.SEED)
        return Real.seed(self)

    def __deepcopy__(self, memo):
        copy = memo[id(self)] = Generator("cuda")
        copy.set_raw_state(self.raw_state())
        return copy

    def register(self, graph):
        if self.stand_in.capturing():
            raise torch_error(errors.LATE)
        graph.generators.add(self)

    def begin_capture(self, capture):
        """A capture begins that may draw from it."""
        self.capture, self.number = capture, 0
        capture.start[self] = self.raw_state()

    def next_draw(self):
        """What an operator draws now: in a capture its generator and two numbers of states."""
        capture = self.stand_in.capture
        if not self.stand_in.capturing():
            if self.capture and not errors.PER_CAPTURE:
                raise torch_error(errors.OUTSIDE)
            return self
        if len(capture.bodies) > 1:
            if errors.SINCE_2_15:
                raise torch_error(errors.IN_BODY)
            raise NotModelled("Random numbers in a conditional node's body are not modelled.")
        if self.capture is not capture:
            if not errors.SINCE_2_15:
                raise torch_error(errors.UNREGISTERED)
            self.begin_capture(capture)
        begins, self.number = self.number, next(capture.numbers)
        return self, begins, self.number


UNKNOWN = "graphsafe_get_state graphsafe_set_state clone_state get_offset set_offset __reduce__"
for _name in UNKNOWN.split():
    setattr(Generator, _name, not_modelled_stub(f"Generator.{_name}"))
