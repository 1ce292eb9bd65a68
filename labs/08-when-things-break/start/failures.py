"""Your answers. Python's standard library is all that they may import."""


def other_root(tenant, roots, lost, residual):
    """The root that a tenant moves to, the links that it leaves, and those that it needs there.

    tenant    {"root": "core 0", "bandwidth": 10, "vms": {"server 0": 1, "server 4": 2}}
    roots     {"core 0": {"server 0": ["server 0 - edge 0", "edge 0 - aggregation 0",
                                       "aggregation 0 - core 0"], …}, …}
              of each root the way up to it from each server; in the order in which they are tried
    lost      ["aggregation 0 - core 0"]: links that carry nothing; one of them is the tenant's
    residual  {"server 0 - edge 0": 10, …}: bandwidth that is free on each link, while the tenant
              still holds what it has reserved

    Returns ["core 1", ["aggregation 0 - core 0", …], {"aggregation 0 - core 1": 10, …}], or None
    where no other root has room. A link that both trees use is neither left nor needed.
    """
    return None


def policed(frames, rate, bucket):
    """Which frames pass a policer: a list of booleans.

    frames  [[0, 1500], [0, 1500], [12, 700]]: time of arrival in ms, length in bytes
    rate    in bytes per ms
    bucket  in bytes; full at the beginning

    A frame that finds as many tokens as it has bytes takes them and passes; else it is dropped.
    """
    return [True for _ in frames]


def shaped(frames, rate, queue):
    """When frames leave a shaper with their last byte, in ms: a list; None for a dropped frame.

    The shaper sends `rate` bytes per ms, one frame after the other. A frame that finds so much
    before it (what is left of the frame that is being sent counts) that both are more than `queue`
    bytes is dropped. What is left comes of a division: where it should just fit, rounding may make
    both more by some 1e-12, so allow for 1e-6 bytes.
    """
    return [time for time, _ in frames]


def throughput(burst, period, rate, bucket):
    """Bytes per ms, in the long run, of `burst` bytes at once every `period` ms: [policer, shaper].

    Both have `rate` bytes per ms. The policer has a bucket of `bucket` bytes and drops single
    bytes; the shaper's queue holds more than a burst and than a period's bytes.
    """
    return [rate, rate]


def what_lasts(event):
    """Your prediction for an event of the page's table.

    traffic    do a's packets still arrive, 2 s after it?
    guarantee  has a the bandwidth then that it has reserved?
    add        `testbed tenant add` of tenant c, right after it: "admitted" or "refused"
    """
    return {"traffic": True, "guarantee": True, "add": "admitted"}
