"""The controller: desired state of the tenants in, OpenFlow rules out.

`values` and `flows` are pure and import nothing but the standard library and pydantic, so that a
plan can be drawn up, printed and tested without a switch, a controller library or root. The
process itself is started with `python -m controller.launch`; `api_client` talks to it.
"""
