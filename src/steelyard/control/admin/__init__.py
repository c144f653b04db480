"""The admin API: the fleet, shown and changed over HTTP. `server` brings in Starlette and uvicorn: import it late."""
