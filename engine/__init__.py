"""The engine: loads a model, runs the token loop, says what happens as frozen events. Knows no Qt."""
