"""What passes between the supervisor and its workers: messages down a socket, and the load board.

Both rooms import this, and never each other."""
