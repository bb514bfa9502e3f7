"""LiveKit Agents: a voice agent that knows the caller before the first word."""
