"""The order of launches, and what goes wrong without one.

Every launch runs at once and goes into a log. Each stream has a vector clock, and so has the host,
which orders what it launches after what it has waited for. If a launch touches bytes that another
stream has touched, one of them writing, and nothing orders the two, the log is run anew with that
launch as early as its own stream allows: the order that nobody expects. (If something in the log
sleeps, in the order that the sleeping gives.) The log ends where the
host has waited for everything, or when it is as long as a real queue.
"""

from collections import defaultdict
from itertools import count

HOST, QUEUE = "host", 1024  # launches


class Order:
    """The clocks of streams and host, the log, and what memory held when the log began."""

    def __init__(self, on_finished, on_race, on_waited):
        self.clocks = defaultdict(dict)
        self.ticks = count(1)
        self.on_finished = on_finished  # called when the host has waited for everything
        self.on_race = on_race  # called with each two launches that race, the earlier one first
        self.on_waited = on_waited  # called when the host has waited
        self.epoch = 0  # how often it has: an older clock says nothing about what is still pending
        self.log = []
        self.before = {}  # what blocks held when the log began

    def tick(self, stream):
        """The clock of the next launch on a stream."""
        clock = self.clocks[stream]
        merge_into(clock, self.clocks[HOST])
        clock[stream] = next(self.ticks)
        return dict(clock)

    def now(self, stream):
        """What a stream has done by now: the epoch, and its clock."""
        return self.epoch, dict(self.clocks[stream])

    def pending_clock(self, moment):
        """The clock of a moment, or none if the host has waited for everything since."""
        epoch, clock = moment
        return clock if epoch == self.epoch else {}

    def wait(self, stream, clock):
        """Order what a stream, or the host, does from now on after what a clock has seen."""
        merge_into(self.clocks[stream], clock)
        if stream == HOST and all(node.before(clock) for node in self.log):
            for block in {block for node in self.log for block, *_ in node.spans}:
                block.accesses.clear()
            for part in (self.log, self.before, self.clocks):
                part.clear()
            self.epoch += 1
            self.on_finished()
        if stream == HOST:
            self.on_waited()

    def synchronize(self):
        """The host waits for everything."""
        everything = {}
        for clock in self.clocks.values():
            merge_into(everything, clock)
        self.wait(HOST, everything)

    def save_contents(self, spans):
        """Keep what blocks hold, before they are written to for the first time since the
        log began.
        """
        for (block, *_), writes in spans.items():
            if writes and block not in self.before:
                self.before[block] = block.bytes.clone()

    def log_launch(self, node):
        """Put a launch into the log; returns whether it races with an earlier one."""
        rivals = [other for other in self.touching(node) if not other.before(node.clock)]
        for rival in rivals:
            self.on_race(rival, node)
        if not rivals:
            self.log.append(node)
        elif node.cycles or any(other.cycles for other in self.log):
            self.log.append(node)
            self.log.sort(key=self.sort_key())
        else:  # as early as its own stream allows
            awaited = [other for other in self.log if other.before(node.clock)]
            others = [other for other in self.log if not other.before(node.clock)]
            self.log = [*awaited, node, *others]
        for (block, start, end), writes in node.spans.items():
            block.accesses[node.stream, writes, start, end] = node
        return bool(rivals)

    def touching(self, node):
        """The last launches that touch a launch's bytes, one of the two writing."""
        for (block, start, end), writes in node.spans.items():
            for (_, wrote, first, last), other in block.accesses.items():
                if (writes or wrote) and start < last and first < end:
                    yield other

    def start_times(self):
        """When each launch in the log begins: what does not sleep takes a cycle, so that two graphs
        which begin together take turns.
        """
        starts = {}
        for node in self.log:
            ends = (
                start + other.cycles + 1
                for other, start in starts.items()
                if other.before(node.clock)
            )
            starts[node] = max(ends, default=0)
        return starts

    def sort_key(self):
        """The key that sorts the log: launches that begin together are first in turn."""
        starts = self.start_times()

        def key(node):
            launch = node.stream[0] if isinstance(node.stream, tuple) else node.clock[node.stream]
            return starts[node], -launch if starts[node] % 2 else launch

        return key

    def rerun_after_race(self, raced):
        """After a race, go back to where the log begins and run it in its new order."""
        if raced:
            for block, content in self.before.items():
                block.bytes.copy_(content)
            for node in self.log:
                node.run()
        if len(self.log) > QUEUE:
            self.synchronize()


def merge_into(clock, other):
    """Let a clock know what another one knows."""
    for stream, tick in other.items():
        clock[stream] = max(clock.get(stream, 0), tick)
