"""Another root for a tenant, policer and shaper, and what lasts when something ends."""


def other_root(tenant, roots, lost, residual):
    """The first other root on whose links there is room: [root, left, needed]."""
    held = needs(tenant, roots[tenant["root"]])
    for root, paths in roots.items():
        wanted = needs(tenant, paths)
        if root == tenant["root"] or any(link in lost for link in wanted):
            continue
        new = {link: bandwidth for link, bandwidth in wanted.items() if link not in held}
        if all(bandwidth <= residual[link] for link, bandwidth in new.items()):
            return [root, [link for link in held if link not in wanted], new]
    return None


def needs(tenant, paths):
    """Link -> min(X, N - X) B, where it is above 0."""
    vms = sum(tenant["vms"].values())
    below = {}
    for server, count in tenant["vms"].items():
        for link in paths[server]:
            below[link] = below.get(link, 0) + count
    reserved = {link: min(x, vms - x) * tenant["bandwidth"] for link, x in below.items()}
    return {link: bandwidth for link, bandwidth in reserved.items() if bandwidth}


def policed(frames, rate, bucket):
    """A token bucket: tokens come all the time, and no more than the bucket holds."""
    tokens, last, passes = bucket, 0, []
    for time, size in frames:
        tokens = min(bucket, tokens + (time - last) * rate)
        last = time
        passes.append(size <= tokens)
        if passes[-1]:
            tokens -= size
    return passes


def shaped(frames, rate, queue):
    """A frame leaves when all before it have, and its own bytes."""
    free, leaves = 0.0, []
    for time, size in frames:
        waiting = max(0.0, free - time) * rate
        if waiting + size > queue + 1e-6:
            leaves.append(None)
            continue
        free = max(free, time) + size / rate
        leaves.append(free)
    return leaves


def throughput(burst, period, rate, bucket):
    """The policer passes a bucket of each burst at most, the shaper sends all the time."""
    policer = min(burst, bucket, rate * period) / period
    shaper = min(burst / period, rate)
    return [policer, shaper]


LASTS = {
    "controller killed": (True, True, "admitted"),
    "link lost, room elsewhere": (True, True, "admitted"),
    "link lost, no room elsewhere": (False, False, "refused"),
    "server's link lost": (False, False, "refused"),
    "switch restarted": (True, True, "admitted"),
}


def what_lasts(event):
    traffic, guarantee, add = LASTS[event]
    return {"traffic": traffic, "guarantee": guarantee, "add": add}
