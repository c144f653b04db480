"""Loads as the admin API and the alarms show them."""

from ..views import HostView, LoadingView, LoadTimeView, PlacingView, SetbackView

__all__ = ["HostView", "LoadTimeView", "LoadingView", "PlacingView", "SetbackView"]
