"""Answers to the exercises of *Graph Megatron*: wrong ones, and other right ones (`__right_`)."""


def one_graph_each(iterates, copy_batch=True, clone_loss=True):
    def wrapped(iterate):
        graph = torch.cuda.CUDAGraph()
        kept = {}

        def call(batch):
            if not kept:
                kept["static"] = batch.clone()
                return iterate(kept["static"])
            if copy_batch:
                kept["static"].copy_(batch)
            if "loss" not in kept:
                with torch.cuda.graph(graph):
                    kept["loss"] = iterate(kept["static"])
            graph.replay()
            return kept["loss"].clone() if clone_loss else kept["loss"]

        return call

    return [wrapped(iterate) for iterate in iterates]


def in_graphs__not_cloned(iterates):
    """The next replay overwrites the loss."""
    return one_graph_each(iterates, clone_loss=False)


def in_graphs__not_copied(iterates):
    """Every replay reads the first batch."""
    return one_graph_each(iterates, copy_batch=False)


def in_graphs__one_number_of_rows(iterates):
    """A batch of another shape cannot be copied into the static input."""
    return one_graph_each(iterates)


def in_graphs__eager(iterates):
    """There is no graph."""
    return list(iterates)


def in_graphs__captured_at_every_call(iterates):
    """A capture at every call takes longer than an eager call."""

    def wrapped(iterate):
        def call(batch):
            graph, static = torch.cuda.CUDAGraph(), batch.clone()
            with torch.cuda.graph(graph):
                loss = iterate(static)
            graph.replay()
            return loss.clone()

        return call

    return [wrapped(iterate) for iterate in iterates]


def in_graphs__starts_again(iterates):
    """It forgets the graph when the number of rows changes."""

    def wrapped(iterate):
        kept = {}

        def call(batch):
            if kept.get("rows") != len(batch):
                kept["rows"] = len(batch)
                kept["call"] = one_graph_each([iterate])[0]
            return kept["call"](batch)

        return call

    return [wrapped(iterate) for iterate in iterates]


class Graphed:
    def __init__(self, iterate):
        self.iterate, self.graph, self.static = iterate, None, None

    def __call__(self, batch):
        if self.static is None:
            self.static = batch.clone()
            return self.iterate(self.static)
        self.static.copy_(batch)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.iterate(self.static)
        self.graph.replay()
        return self.loss.clone()


def in_graphs__right_class(iterates):
    def wrapped(iterate):
        by_shape = {}

        def call(batch):
            if batch.shape not in by_shape:
                by_shape[batch.shape] = Graphed(iterate)
            return by_shape[batch.shape](batch)

        return call

    return [wrapped(iterate) for iterate in iterates]


def in_graphs__right_captured_at_the_first_call(iterates):
    def wrapped(iterate):
        replays = {}

        def call(batch):
            rows = len(batch)
            if rows not in replays:
                replays[rows] = capture_step(iterate, batch.clone())
            return replays[rows](batch).clone()

        return call

    return [wrapped(iterate) for iterate in iterates]


changed(
    in_graphs,
    R4_captured_at_the_first_and_the_second_call={
        "return iterate(kept['static'])": "",
        "if kept['calls'] == 2:": "if kept['calls'] <= 2:",
    },
)


def losses_of(net, microbatches, divide=True, before_each=None):
    losses = []
    for one in microbatches:
        if before_each:
            before_each()
        loss = net(one).square().mean()
        if divide:
            loss = loss / len(microbatches)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses)


if torch.__version__ < "2.15":  # from 2.15 on a capture registers its generators by itself

    def capture_iteration__generator_not_registered(net, generator, microbatches):
        """A graph cannot draw from a generator that it does not know."""
        with unchanged(net, generators=[generator]):
            static = [one.clone() for one in microbatches]
            replay = capture_step(lambda *inputs: losses_of(net, inputs), *static)
        return lambda new: replay(*new).clone()


def captured(iteration, net, generator, microbatches):
    with unchanged(net, generators=[generator]):
        static = [one.clone() for one in microbatches]
        replay = capture_step(iteration, *static, generators=[generator])
    return lambda new: replay(*new).clone()


def capture_iteration__warm_up_drew(net, generator, microbatches):
    """Without `unchanged`, the warm-up's draws change all later masks."""
    static = [one.clone() for one in microbatches]
    replay = capture_step(lambda *inputs: losses_of(net, inputs), *static, generators=[generator])
    return lambda new: replay(*new).clone()


def capture_iteration__zeroed_between(net, generator, microbatches):
    """Only the last microbatch's gradients are left."""

    def zero():
        net.zero_grad(set_to_none=False)

    def iteration(*inputs):
        return losses_of(net, inputs, before_each=zero)

    return captured(iteration, net, generator, microbatches)


def capture_iteration__gradients_anew(net, generator, microbatches):
    """It replaces .grad, so the caller zeroes and reads other tensors."""

    def iteration(*inputs):
        net.zero_grad()
        return losses_of(net, inputs)

    return captured(iteration, net, generator, microbatches)


def capture_iteration__zeroed_in_the_graph(net, generator, microbatches):
    """Two calls in a row do not add up."""

    def iteration(*inputs):
        net.zero_grad(set_to_none=False)
        return losses_of(net, inputs)

    return captured(iteration, net, generator, microbatches)


def capture_iteration__not_divided(net, generator, microbatches):
    """Losses and gradients are too large by the number of microbatches."""

    def iteration(*inputs):
        return losses_of(net, inputs, divide=False)

    return captured(iteration, net, generator, microbatches)


def capture_iteration__a_graph_for_each(net, generator, microbatches):
    """One graph launch per microbatch instead of one per iteration."""

    def backward(one):
        loss = net(one).square().mean() / len(microbatches)
        loss.backward()
        return loss.detach()

    with unchanged(net, generators=[generator]):
        replay = capture_step(backward, microbatches[0].clone(), generators=[generator])
    return lambda new: torch.stack([replay(one).clone() for one in new])


def capture_iteration__right_stacked(net, generator, microbatches):
    graph, static = torch.cuda.CUDAGraph(), torch.stack(microbatches)
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        losses = []
        for one in static:
            losses.append(net(one).square().mean() / len(microbatches))
            losses[-1].backward()

    def iterate(new):
        static.copy_(torch.stack(new))
        graph.replay()
        return [loss.detach().clone() for loss in losses]

    return iterate


def two_steps(net):
    def forward(x):
        return net(x).square().mean()

    def backward(x):
        loss = forward(x)
        loss.backward()
        return loss.detach()

    return forward, backward


def capture_both(net, generator, inputs, eval_mode=True, no_grad=True, generators=()):
    """Replays of a training and of a validation."""
    forward, backward = two_steps(net)
    with unchanged(net, generators=[generator]):
        train = capture_step(backward, inputs.clone(), generators=[generator])
        net.train(not eval_mode)
        step = torch.no_grad()(forward) if no_grad else forward
        validate = capture_step(step, inputs.clone(), generators=generators)
        net.train()
    return train, validate


def train_and_validate__eval_forgotten(net, generator, inputs):
    """The validation has dropout, and its graph does not know the generator."""
    train, validate = capture_both(net, generator, inputs, eval_mode=False)
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__gradients_on(net, generator, inputs):
    """The graph of the validation keeps activations for a backward pass that never comes."""
    train, validate = capture_both(net, generator, inputs, no_grad=False)
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__right_inference_mode(net, generator, inputs):
    forward, backward = two_steps(net)
    with unchanged(net, generators=[generator]):
        train = capture_step(backward, inputs.clone(), generators=[generator])
        net.eval()
        static = inputs.clone()  # not in inference mode: a replay copies into it
        with torch.inference_mode():
            validate = capture_step(forward, static)
        net.train()
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__stays_in_eval(net, generator, inputs):
    """The caller's net is left in eval mode."""
    train, validate = capture_both(net, generator, inputs)
    net.eval()
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__one_graph(net, generator, inputs):
    """The validation trains: it has dropout and changes the gradients."""
    train, _ = capture_both(net, generator, inputs)
    return lambda x: train(x).clone(), lambda x: train(x).clone()


def train_and_validate__not_cloned(net, generator, inputs):
    """The next replay overwrites the losses."""
    return capture_both(net, generator, inputs)


def train_and_validate__trained_in_eval(net, generator, inputs):
    """The training has no dropout: it was captured in eval mode."""
    forward, backward = two_steps(net)
    net.eval()
    with unchanged(net, generators=[generator]):
        validate = capture_step(torch.no_grad()(forward), inputs.clone())
        train = capture_step(backward, inputs.clone(), generators=[generator])
    net.train()
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__R4_zeroed_in_the_training(net, generator, inputs):
    forward, backward = two_steps(net)

    def train(x):
        net.zero_grad(set_to_none=False)
        return backward(x)

    with unchanged(net, generators=[generator]):
        replay = capture_step(train, inputs.clone(), generators=[generator])
        net.eval()
        validate = capture_step(torch.no_grad()(forward), inputs.clone())
        net.train()
    return lambda x: replay(x).clone(), lambda x: validate(x).clone()


def train_and_validate__D14_validated_on_a_clone(net, generator, inputs):
    import copy

    train, _ = capture_both(net, generator, inputs)
    other = copy.deepcopy(net).eval()
    forward, _ = two_steps(other)
    validate = capture_step(torch.no_grad()(forward), inputs.clone())
    return lambda x: train(x).clone(), lambda x: validate(x).clone()


def train_and_validate__right_by_hand(net, generator, inputs):
    graphs, static, losses = [torch.cuda.CUDAGraph() for _ in range(2)], inputs.clone(), []
    graphs[0].register_generator_state(generator)
    for graph, training in zip(graphs, (True, False), strict=True):
        net.train(training)
        with torch.cuda.graph(graph), torch.set_grad_enabled(training):
            losses.append(net(static).square().mean())
            if training:
                losses[0].backward()
    net.train()

    def call(number, x):
        static.copy_(x)
        graphs[number].replay()
        return losses[number].detach().clone()

    return lambda x: call(0, x), lambda x: call(1, x)
