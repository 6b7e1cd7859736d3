"""Views over what has happened. They read the run store, ask for colour roles and never import torch."""
