"""The controller: desired state of the tenants in, OpenFlow rules out.

`values` and `flow_rules` are pure and import nothing but the standard library
and pydantic: a plan can be written, printed and tested without a switch, a
controller library or root. The process itself is started with `python -m
controller.launch`; `api_client` talks to it.
"""
