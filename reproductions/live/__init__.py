"""Published evaluations once more on the live network, beside the simulator, from the same file.

A *live figure* (:mod:`reproductions.live.figure`) says which experiment file is played for
which point, what is measured in its run folders, and what is claimed. Who plays it is handed in
(:class:`reproductions.live.play.Worlds`): nothing here starts a network.
"""
