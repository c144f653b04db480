"""Uploads that hold the buffers and drip: others are served all the same (issue 13, point 18)."""

from __future__ import annotations

from tests.harness import Serving, StubReplica, config, request, wait_until

KIB = 1 << 10
UPLOADS = 32
HELD_BYTES_EACH = 64 * KIB  # of each


def test_dripping_uploads_do_not_keep_the_buffers_from_others() -> None:
    """All come from one address. They are told from other uploads when they have been slow for a second."""
    whole = str(UPLOADS * HELD_BYTES_EACH)
    with (
        StubReplica("a") as stub,
        Serving(config([stub], limits={"total_buffer_bytes": whole, "replay_bytes": whole})) as gateway,
    ):
        head = request("POST", headers={"content-length": str(2 * HELD_BYTES_EACH)})
        drips = [gateway.connect() for _ in range(UPLOADS)]
        for connection in drips:
            connection.send(head + b"x" * (HELD_BYTES_EACH - 1))

        def served() -> bool:
            with gateway.connect() as other:
                other.send(head + b"y" * HELD_BYTES_EACH)
                other.quiet(0.05)  # so that what came has to be held
                other.try_send(b"y" * HELD_BYTES_EACH)
                return other.response("POST").status == 200

        wait_until(served, "others are refused for as long as the uploads drip")
        gone = [connection for connection in drips if not connection.quiet(0.0)]
        assert gone, "none of the uploads gave way"
        response = gone[0].response("POST")
        assert (response.status, response.headers["steelyard-reason"]) == (503, "body_evicted")
        assert "retry-after" in response.headers
        for connection in drips:
            connection.close()
