"""The demo's replica: a small embedding model behind OpenAI's API."""
