"""The members of the fleet, the state of each replica, and what workers receive of both."""
