"""What a kill campaign does, drawn from a seed: the same seed draws the same events in the same order.

Two sides, each a LAN with an I/O unit and three hosts; and pairs of verbs programs. In each round something happens to
each side at the same time. Kinds of events are dealt from shuffled decks, so that even a short campaign has all of them.
"""

import random
from dataclasses import dataclass, replace

SIDES = 2
HOSTS = 3  # on each side
PAIRS = 2  # of verbs programs

# The processes that a kind of event kills. "rights": the privileged process of a daemon.
KILLED = {"host": 1, "host rights": 1, "unit": 1, "unit rights": 1, "unit and host": 2, "verbs client": 1,
          "verbs server": 1}
# Processes stand still for a while; the host's connection to the unit is cut; the LAN loses all frames.
OTHERS = ("host stopped", "rights stopped", "unit stopped", "verbs stopped", "bridge cut", "cable cut",
          "interface down", "interface removed")

_HOST_DECK = ("host",) * 5 + ("host rights", "host stopped", "bridge cut") * 2 + ("rights stopped",)
_SIDE_DECK = ("hosts",) * 6 + ("unit",) * 2 + ("unit rights", "unit and host", "unit stopped", "cable cut",
                                               "interface down", "interface removed") + ("nothing",) * 2
_VERBS_DECK = ("verbs client", "verbs server") * 2 + ("verbs stopped",) + ("nothing",) * 5

_LATEST_STRIKE = 0.1
_LONGEST_DOWN = 0.02
_LONGEST_LOSS = 0.3
_AGAIN = 0.3  # the share of kills whose new process is killed, too
_AGAIN_SECONDS = (0.0005, 0.06)


@dataclass(frozen=True)
class Event:
    kind: str
    side: int = 0        # of hosts, units and LANs
    who: int = 0         # the host on its side, or the pair
    at: float = 0.0      # seconds after the round's start
    held: float = 0.0    # seconds until what was killed is started, what was stopped continues, what was cut is back
    again: float = 0.0   # kill the new process so many seconds after its start; 0: don't

    @property
    def kills(self):
        return KILLED.get(self.kind, 0) + (1 if self.again else 0)


class _Deck:
    def __init__(self, drawn, cards):
        self._drawn, self._cards, self._left = drawn, cards, []

    def deal(self):
        if not self._left:
            self._left = list(self._cards)
            self._drawn.shuffle(self._left)
        return self._left.pop()


class _Dealer:
    def __init__(self, seed):
        self._drawn = random.Random(seed)
        self._hosts, self._sides, self._verbs = (_Deck(self._drawn, deck)
                                                 for deck in (_HOST_DECK, _SIDE_DECK, _VERBS_DECK))

    def round(self):
        events = []
        for side in range(SIDES):
            kind = self._sides.deal()
            if kind == "hosts":
                struck = self._drawn.sample(range(HOSTS), self._drawn.randint(1, HOSTS))
                events += [self._event(self._hosts.deal(), side, host) for host in struck]
            elif kind != "nothing":
                events.append(self._event(kind, side, self._drawn.randrange(HOSTS)))
        kind = self._verbs.deal()
        if kind != "nothing":
            events.append(self._event(kind, 0, self._drawn.randrange(PAIRS)))
        return events

    def _event(self, kind, side, who):
        drawn = self._drawn
        at = drawn.uniform(0, _LATEST_STRIKE)
        held = drawn.uniform(0, _LONGEST_DOWN if kind in KILLED else _LONGEST_LOSS)
        again = 0.0
        if kind in KILLED and not kind.startswith("verbs") and drawn.random() < _AGAIN:
            shortest, longest = _AGAIN_SECONDS
            again = shortest * (longest / shortest) ** drawn.random()
        return Event(kind, side, who, at, held, again)


def draw(seed, kills):
    """The rounds of a campaign, each a list of events, with exactly so many kills."""
    dealer, rounds, left = _Dealer(seed), [], kills
    while left:
        events = []
        for event in dealer.round():
            if event.kills > left:
                event = replace(event, again=0.0)
            if event.kills > left:
                event = replace(event, kind="unit")
            if left:
                events.append(event)
                left -= event.kills
        rounds.append(events)
    return rounds
