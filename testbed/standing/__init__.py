"""The network that stays up: keeper, tenants, links, switches, verification."""
