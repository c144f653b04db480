"""How promises to the users of models are kept: counted, judged over windows, alerted when broken, kept on disk."""
