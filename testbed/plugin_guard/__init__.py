"""Guard around code from outside: its time limit, and checks of its results."""
