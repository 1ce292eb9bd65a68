"""Guard around code from outside: time limits and checks of its answers."""
