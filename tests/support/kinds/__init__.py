"""Small Ryu applications of the kinds that are public, each by its own code.

For os-ken, ``ryu`` is ``os_ken`` and ``RyuApp`` is ``OSKenApp`` in their text.
"""
