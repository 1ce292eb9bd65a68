"""An experiment played in a world, into a run folder."""
