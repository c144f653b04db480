"""What passes between the supervisor and its workers. Both import this room, and never each other."""
