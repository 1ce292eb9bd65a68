"""Lines of tenants' texts, as installed, that concern a switch or a link."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

LONGEST_TEXT = 200_000
HEADING = "# "
DEVICE = " dev "


def installed_on(
    texts: Mapping[str, str],
    bridges: Collection[str],
    ports: Collection[str],
) -> str:
    """The tc text of ports and bridges, and the bridges' flows, tenant by tenant.

    ``texts``: of each tenant, by ``testbed.plan.installation.tenant_text``.
    """
    parts = []
    for tenant, text in texts.items():
        lines = list(_lines(text, bridges, ports))
        if lines:
            parts.append("\n".join([f"# tenant {tenant}", *lines]))
    # A switch in the core has flows of all tenants.
    return "\n".join(parts)[:LONGEST_TEXT]


def _lines(
    text: str, bridges: Collection[str], ports: Collection[str]
) -> Iterator[str]:
    # Ports to other switches, and those to VMs.
    begins = []
    for bridge in bridges:
        begins += [f"{bridge}-", f"{bridge}v"]
    heading = ""
    for line in text.splitlines():
        if line.startswith(HEADING):
            heading = line.removeprefix(HEADING)
            if heading in bridges:
                yield f"# flows of {heading}"
        elif DEVICE in line:
            device = line.partition(DEVICE)[2].partition(" ")[0]
            if device in ports or device.startswith(tuple(begins)):
                yield line
        elif heading in bridges:
            yield line
