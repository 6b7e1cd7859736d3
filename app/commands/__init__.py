"""The commands: a few dozen lines each over the engine. Each has `add_arguments(parser)` and `run(args) -> exit code`.

They are imported one at a time and import torch only inside `run`, so that a wrong argument is told at once.
"""
