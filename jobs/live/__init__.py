"""The live job: agents that move real bytes and burn real CPU inside network
namespaces.
"""
