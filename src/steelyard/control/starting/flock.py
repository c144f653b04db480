"""The started replicas of one model: what happens to them, and what is done about it."""

from __future__ import annotations

from ...config import Runtime
from ...core.replica import Event, State
from ...runtimes import Instance, fingerprint
from ...runtimes import Phase as RunPhase
from ...units import show_seconds
from .account import Account
from .bulletin import Bulletin
from .departures import Departures
from .failing import failing
from .life import LEAVING, Phase, Turn
from .orders import Orders
from .plan import least_valuable, plan
from .rooms import NoRoomError
from .seeing import see
from .started import Started
from .tools import Tools
from .troubles import Troubles


class Flock:
    def __init__(self, model: str, tools: Tools) -> None:
        self.model = model
        self.wanted: int | None = None  # nobody has said yet
        self.missing = 0
        self.replicas: dict[str, Started] = {}
        self.troubles = Troubles(tools.hands)
        self.account = Account()
        self.orders = Orders(model, tools)
        self.departures = Departures(model, tools, self._gone)
        self.settings: Runtime | None = None  # None: no replica of ours should be
        self._made_of = ""
        self._why = ""
        self._tools = tools
        self._hands = tools.hands
        self._bulletin = Bulletin(model, tools.hands)
        self._settles = self._unsettled = False

    # ------------------------------------------------------------------ what is wanted

    def follow(self, settings: Runtime | None) -> None:
        if settings is None:
            self.wanted = None
        if settings != self.settings:
            self.troubles.setbacks.clear()
        self.settings = settings
        if settings is not None:
            self.departures.settings, self._made_of = settings, fingerprint(settings)
        self.settle()
        if self.model not in self._tools.config.models:  # nor is it known to the fleet any more
            for replica in self.replicas.values():
                replica.member = False
            self._bulletin.forgotten()

    def want(self, replicas: int, why: str) -> None:
        if replicas != self.wanted and self.settings is not None:
            self.wanted, self._why = replicas, why
            self.settle()

    def outdated(self, replica: Started) -> bool:
        settings, instance = self.settings, replica.instance
        if settings is None or instance.made_of != self._made_of:
            return True
        return self.orders.misplaced(settings, instance.device)

    def settle(self) -> None:
        """Does what there is to be done. What is told to others may come back here: once more, then."""
        self._unsettled = True
        if self._settles:
            return
        self._settles = True
        try:
            while self._unsettled and not self._tools.resting:
                self._unsettled = False
                self._settle()
        finally:
            self._settles = False

    def _settle(self) -> None:
        if self.wanted is None and self.settings is not None:
            return
        now, wanted = self._tools.clock(), self.wanted or 0
        choose = least_valuable(wanted, lambda: self._hands.worths(self.model), self.outdated, self.price, now)
        todo = plan(wanted, self.replicas.values(), self.outdated, self.troubles.setbacks, choose, now)
        self.missing = todo.missing
        for replica, why in todo.leave:
            if self._tools.sparing and replica.adopted:
                continue
            self.departures.leave(replica, why)
            self._unsettled = True  # without it, fewer may be allowed
        for replica in todo.back:
            self.departures.back(replica, now)
            self._tell_coming(now)
        if todo.starts:
            self._start(todo.starts, now)
        else:
            self.troubles.shortage.end()  # if there is one, it is not what keeps us now

    # ------------------------------------------------------------------ starts

    def _start(self, count: int, now: float) -> None:
        try:
            for _ in range(count):
                self._start_one(now)
            self.troubles.shortage.end()
        except NoRoomError as problem:
            self.troubles.no_room(self.model, str(problem), self._former(), now)
        self._tell_coming(now)

    def _start_one(self, now: float) -> None:
        replica, order = self.orders.new(self.departures.settings, self.replicas, now)
        self.replicas[replica.id] = replica
        self.account.starts += 1
        where = f" on {order.device}" if order.device else ""
        self._hands.note(f"is being started{where}: {self._why}", *replica.key)
        self._tools.errands.start(replica, order, self._began, self._refused)

    def _began(self, replica: Started, instance: Instance) -> None:
        if replica.instance.phase is RunPhase.STARTING and not replica.instance.url:  # nobody told us more
            replica.instance = instance
        if replica.phase is Phase.STOPPING:  # nobody wants it any more
            self.departures.send_away(replica)
            return
        replica.take(Turn.STARTED, replica.began)
        if replica.has_ended:
            self._ended(replica)
        else:
            self._changed()

    def _refused(self, replica: Started, reason: str, why: str) -> None:
        unwanted = replica.phase is Phase.STOPPING
        replica.take(Turn.REFUSED, self._tools.clock())
        if not unwanted:
            self._failed(replica, reason, f"it could not be started: {why}", replica.began)
        self._forget(replica)

    def adopt(self, instance: Instance, kind: str) -> None:
        replica = self.orders.found(instance, kind, self.replicas, self._tools.clock())
        self.replicas[instance.id] = replica
        if instance.id in self._tools.listed(self.model):
            self.departures.leave(replica, "another replica has its name now")
        elif self.settings is not None:
            self._hands.note(f"adopted: it runs since {show_seconds(instance.age)}", *replica.key)
            self._changed()

    # ------------------------------------------------------------------ what is seen of them

    def told(self, instance: Instance) -> None:
        """By its runtime."""
        replica = self.replicas.get(instance.id)
        if replica is None:
            return
        replica.instance = instance
        if replica.phase in (Phase.ORDERED, Phase.STOPPING):
            return  # whoever waits for that hears of it
        if replica.has_ended:
            self._ended(replica)
        else:
            self._changed()

    def stands(self, id: str, state: State) -> None:
        """In the eyes of the fleet."""
        replica = self.replicas.get(id)
        if replica is None or state is State.GONE:
            return
        now = self._tools.clock()
        replica.stood(state, now)
        if replica.phase in LEAVING:
            if state is not State.DRAINING:  # an operator, or a new configuration, undid that
                self._hands.move(replica.key, Event.DRAIN, "it is on its way out")
            return
        before = replica.phase
        if (seconds := see(replica, state, now)) is not None:
            self._tools.times.learn(self.model, seconds)
            self._hands.note(f"ready {show_seconds(seconds)} after its start", *replica.key)
        if replica.phase is not before:
            self.settle()

    def tick(self, now: float) -> None:
        for replica in list(self.replicas.values()):
            if replica.is_steady(now) and not replica.proven:
                replica.proven = True
                if not self.outdated(replica):
                    self.troubles.setbacks.clear()
        for replica, why in failing(self.replicas.values(), self.departures.settings.start_timeout, self.missing, now):
            self._failed(replica, "never_ready", why, replica.since)
            self.departures.leave(replica, why, given_up=True)
        if not any(replica.on_trial for replica in self.replicas.values()):
            self.troubles.setbacks.fade(now)
        if self.departures.settings.devices and self.replicas:
            self.orders.footprint()  # to know it when none is left
        self._tell_members()
        self.settle()
        self._tell_if_due(now)

    # ------------------------------------------------------------------ what goes wrong

    def _ended(self, replica: Started) -> None:
        now, leaving = self._tools.clock(), replica.phase in (*LEAVING, Phase.ASIDE)
        proven = replica.proven or replica.is_steady(now)
        self._tools.errands.call_off(replica)
        replica.take(Turn.ENDED, now)
        why = f"its process ended: {replica.instance.how or 'nobody knows how'}"
        if leaving or proven:
            self.account.crashes += 1
        if leaving:
            self.troubles.ended_leaving(replica, why)
        elif proven:
            self.troubles.ended(replica, why, now)
        else:
            self._failed(replica, "ended", why, replica.began)
        self._hands.move(replica.key, Event.LOST, why)
        self._forget(replica)

    def _failed(self, replica: Started, reason: str, why: str, began: float) -> None:
        former = 0 if self.outdated(replica) else self._former()
        self.account.crashes += 1
        self.troubles.failed(replica, reason, why, began, former, self._tools.clock())
        self._bulletin.broken()

    def _former(self) -> int:
        """Those that a new one should replace."""
        return sum(1 for replica in self.replicas.values() if replica.alive and self.outdated(replica))

    # ------------------------------------------------------------------ ends

    def _gone(self, replica: Started) -> None:
        replica.take(Turn.ENDED, self._tools.clock())
        self.account.stops += 1
        self._hands.note("stopped", *replica.key)
        if replica.drained_ready:
            self.troubles.setbacks.left_well(replica.began)
        self._forget(replica)

    def _forget(self, replica: Started) -> None:
        self.account.pay(replica, self.price(replica), self._tools.clock())
        del self.replicas[replica.id]
        self._changed()
        self.settle()
        self._tell_if_due(self._tools.clock())

    # ------------------------------------------------------------------ what others are told, and ask

    def _changed(self) -> None:
        if not self._tools.ending:
            self._tell_members()

    def _tell_members(self) -> None:
        if self.model in self._tools.config.models:
            self._bulletin.members(self.replicas.values())

    def _tell_coming(self, now: float) -> None:
        measured = self._tools.cold_start(self.model)[1]
        self._bulletin.coming(self.ready_in(now), now, guessed=not measured, failure=self.failure(now))

    def _tell_if_due(self, now: float) -> None:
        if self._bulletin.is_due(now):
            self._tell_coming(now)

    def price(self, replica: Started) -> float:
        return self._tools.price(self.model, replica.instance.device)

    def failure(self, now: float) -> str:
        """Why the last start failed, for clients; empty: none did, or another is on its way."""
        if any(replica.ready_in(now) is not None for replica in self.replicas.values()):
            return ""
        return self.troubles.told(self.settings is not None and self.settings.show_last_words)

    def ready_in(self, now: float) -> float:
        measured = self._tools.cold_start(self.model)[1]
        soon = [s for replica in self.replicas.values() if (s := replica.ready_in(now, measured)) is not None]
        if soon:
            return min(soon)
        setbacks = self.troubles.setbacks
        if self.missing and setbacks.row and not self.troubles.shortage.why:
            return setbacks.again_in(now) + self._tools.cold_start(self.model)[0]
        return 0.0

    def last_words(self, id: str, lines: int) -> tuple[str, ...] | None:
        """Of one that ended too, as long as its runtime knows; None: it was never ours."""
        replica = self.replicas.get(id)
        if replica is not None:
            return replica.runtime.last_words(self.model, id, lines)
        if self.settings is None or not self._tools.ids.was_used(self.model, id):
            return None
        return self._tools.runtimes[self.settings.kind].last_words(self.model, id, lines)

    def pay(self, now: float) -> None:
        for replica in self.replicas.values():
            self.account.pay(replica, self.price(replica), now)
