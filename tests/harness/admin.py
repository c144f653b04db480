"""The admin API of a running gateway, asked as an operator would, and read as control/observability/views.py says."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from steelyard.control.observability.views import Alarm, DiscoveryView, FleetEvent, FleetView, ModelView, ReplicaView

from .processes import free_port
from .waiting import WAIT_TIMEOUT_SECONDS, wait_until

ANY = "*"
LOOPBACK = "127.0.0.1"

# Often enough for a test, patient enough for a machine with more to do.
PROBED: dict[str, Any] = {"interval": "200ms", "loading_interval": "100ms", "timeout": "5s", "path": "/health"}


def admin_config(**rest: Any) -> dict[str, Any]:
    """The key `admin` of a configuration: on a port of its own."""
    return {"listen": f"{LOOPBACK}:{free_port()}", **rest}


class AdminClient:
    """One for each gateway; `model` is what its calls are about unless they say another."""

    def __init__(self, configuration: dict[str, Any], model: str = ANY, token: str = "") -> None:
        self.model = model
        self.url = f"http://{configuration['admin']['listen']}"
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.http.close()

    # ------------------------------------------------------------------ looking

    def fleet(self) -> FleetView:
        return msgspec.json.decode(self._good("GET", "/v1/fleet").content, type=FleetView)

    def models(self) -> dict[str, ModelView]:
        return {view.model: view for view in self.fleet().models}

    def replicas(self, model: str = "") -> dict[str, ReplicaView]:
        wanted = model or self.model
        return {view.id: view for view in self.fleet().replicas if view.model == wanted}

    def replica(self, id: str, model: str = "") -> ReplicaView:
        return msgspec.json.decode(self._good("GET", self._path(id, model)).content, type=ReplicaView)

    def states(self, model: str = "") -> dict[str, str]:
        return {id: view.state for id, view in self.replicas(model).items()}

    def events(self) -> list[FleetEvent]:
        return msgspec.convert(self._good("GET", "/v1/events").json()["events"], list[FleetEvent])

    def alarms(self) -> dict[str, Alarm]:
        return {alarm.code: alarm for alarm in self.fleet().alarms}

    def discovery(self, model: str = "") -> DiscoveryView:
        """Of a model with one source."""
        (view,) = [view for view in self.fleet().discovery if view.model == (model or self.model)]
        return view

    def ready(self) -> httpx.Response:
        return self.http.get("/readyz")

    # ------------------------------------------------------------------ waiting

    def wait_up(self) -> None:
        """It may listen a little later than the workers do."""
        wait_until(self._answers, f"nothing answers on {self.url}")

    def _answers(self) -> bool:
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def wait_state(self, id: str, *states: str, model: str = "", workers: bool = True) -> ReplicaView:
        """Until the replica is in one of these; `workers`: in the eyes of the balancer too."""

        def there() -> ReplicaView | None:
            view = self.replicas(model).get(id)
            if view is None or view.state not in states:
                return None
            agreed = view.balancer is not None and view.balancer.state in states
            return view if agreed or not workers else None

        try:
            return wait_until(there, f"{id} is not {' or '.join(states)}")
        except AssertionError as problem:
            raise AssertionError(f"{problem}; it is {self.replicas(model).get(id, 'not there')}") from None

    def wait_gone(self, id: str, model: str = "") -> None:
        wait_until(lambda: id not in self.replicas(model), f"{id} stays")

    def wait_ready(self, *ids: str, model: str = "") -> None:
        for id in ids:
            self.wait_state(id, "ready", model=model)

    # ------------------------------------------------------------------ changing

    def drain(self, id: str, model: str = "") -> None:
        self._good("POST", f"{self._path(id, model)}/drain")

    def undrain(self, id: str, model: str = "") -> None:
        self._good("POST", f"{self._path(id, model)}/undrain")

    def place(self, id: str, what: str, model: str = "") -> httpx.Response:
        """`load` or `unload` its model."""
        return self.http.post(f"{self._path(id, model)}/{what}")

    def add(self, model: str = "", **replica: Any) -> httpx.Response:
        return self.http.post(f"/v1/models/{quote(model or self.model, safe='')}/replicas", json=replica)

    def remove(self, id: str, model: str = "") -> httpx.Response:
        return self.http.delete(self._path(id, model))

    def weigh(self, id: str, weight: float | None, model: str = "") -> None:
        self._good("PATCH", self._path(id, model), json={"weight": weight})

    def announce(self, id: str, model: str = "", **lease: Any) -> httpx.Response:
        return self.http.put(self._path(id, model, "leases"), json=lease)

    def withdraw(self, id: str, instance: str, model: str = "") -> httpx.Response:
        return self.http.delete(self._path(id, model, "leases"), params={"instance": instance})

    def _path(self, id: str, model: str, what: str = "replicas") -> str:
        return f"/v1/models/{quote(model or self.model, safe='')}/{what}/{quote(id, safe='')}"

    def _good(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = self.http.request(method, path, **options)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response
