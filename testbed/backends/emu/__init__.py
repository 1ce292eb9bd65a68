"""The live network: namespaces, switches, limits and agents on this machine."""
