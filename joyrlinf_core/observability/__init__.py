"""Events, sinks, performance summary, reader."""
