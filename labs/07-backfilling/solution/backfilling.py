"""FCFS, EASY, CMBF and AMBF, two tiers, and what two VMs on a node get of its CPU."""

THRESHOLD = 0.96


def by_hand():
    """CMBF preempts J5 for J4 at minute 5; AMBF lets nobody but the first preempt."""
    cmbf = {"1": [[0, 20]], "2": [[0, 5]], "3": [[20, 25]], "4": [[5, 10]]}
    ambf = {"1": [[0, 20]], "2": [[0, 5]], "3": [[20, 25]], "4": [[15, 20]]}
    return {
        "cmbf": {**cmbf, "5": [[0, 5], [10, 20]], "6": [[0, 10]]},
        "ambf": {**ambf, "5": [[0, 15]], "6": [[0, 10]]},
    }


def _used(jobs):
    return sum(job["nodes"] for job in jobs)


def _numbers(jobs):
    return sorted(job["job"] for job in jobs)


def fcfs(queue, running, nodes):
    """The jobs that start: in order of arrival, up to the first that does not fit."""
    idle = nodes - _used(running)
    started = []
    for job in queue:
        if job["nodes"] > idle:
            break
        idle -= job["nodes"]
        started.append(job)
    return _numbers(started)


def easy(queue, running, nodes, now):
    """FCFS, then each later job that fits and does not delay the first of the queue."""
    started = fcfs(queue, running, nodes)
    waiting = [job for job in queue if job["job"] not in started]
    busy = list(running)
    busy += [{**job, "ends": now + job["length"]} for job in queue if job["job"] in started]
    if not waiting:
        return started
    head = waiting[0]
    free = nodes - _used(busy)
    at, spare = now, free
    for job in sorted(busy, key=lambda job: job["ends"]):
        if spare >= head["nodes"] and job["ends"] > at:
            break
        at, spare = job["ends"], spare + job["nodes"]
    extra = spare - head["nodes"]
    for job in waiting[1:]:
        if job["nodes"] > free:
            continue
        if now + job["length"] > at:
            if job["nodes"] > extra:
                continue
            extra -= job["nodes"]
        free -= job["nodes"]
        started.append(job["job"])
    return sorted(started)


def victims(later, needed):
    """The jobs that go, of those that arrived later: collected, then spared."""
    collected = []
    for job in sorted(later, key=lambda job: -job["job"]):
        if _used(collected) >= needed:
            break
        collected.append(job)
    for job in sorted(collected, key=lambda job: job["job"]):
        if _used(collected) - job["nodes"] >= needed:
            collected.remove(job)
    return _numbers(collected)


def _runs(queue, running, nodes, head_only):
    waiting = sorted(queue, key=lambda job: job["job"])
    running = list(running)
    order = 0
    while True:
        # A preempted job waits again, and its turn comes after that of the one it went for.
        job = next((job for job in waiting if job["job"] > order), None)
        if job is None:
            return _numbers(running)
        order = job["job"]
        idle = nodes - _used(running)
        later = [other for other in running if other["job"] > order]
        if idle < job["nodes"]:
            if (head_only and job != waiting[0]) or idle + _used(later) < job["nodes"]:
                continue
            gone = victims(later, job["nodes"] - idle)
            waiting += [other for other in later if other["job"] in gone]
            running = [other for other in running if other["job"] not in gone]
        waiting.remove(job)
        waiting.sort(key=lambda job: job["job"])
        running.append(job)


def cmbf(queue, running, nodes):
    """Jobs that run after an event (Algorithm 1)."""
    return _runs(queue, running, nodes, head_only=False)


def ambf(queue, running, nodes):
    """The same where the first of the queue alone may preempt."""
    return _runs(queue, running, nodes, head_only=True)


def schedule(jobs, nodes):
    """When each job runs under CMBF: intervals by number. What is done is kept."""
    left = {job["job"]: job["length"] for job in jobs}
    intervals = {job["job"]: [] for job in jobs}
    running, now = [], 0
    while left:
        present = [job for job in jobs if job["arrives"] <= now and job["job"] in left]
        queue = [job for job in present if job["job"] not in running]
        after = cmbf(queue, [job for job in present if job["job"] in running], nodes)
        for number in after:
            if number not in running:
                intervals[number].append([now, now])
        running = after
        ends = [now + left[number] for number in running]
        arrivals = [job["arrives"] for job in jobs if job["arrives"] > now]
        then = min(ends + arrivals)
        for number in running:
            intervals[number][-1][1] = then
            left[number] -= then - now
            if not left[number]:
                del left[number]
        running = [number for number in running if number in left]
        now = then
    return {str(number): spans for number, spans in intervals.items()}


def tiers(queue, foreground, background, nodes):
    """The jobs of each tier after an event: CMBF, and what it leaves to the background."""
    first = cmbf(queue + background, foreground, nodes)
    everybody = queue + foreground + background
    full = [job for job in everybody if job["job"] in first and job["cpu"] >= THRESHOLD]
    room = nodes - _used(full)
    # Those that run there already come first.
    stays = [job for job in background if job["job"] not in first]
    others = [job for job in queue + foreground if job["job"] not in first]
    behind = []
    for group in (stays, others):
        for job in sorted(group, key=lambda job: job["job"]):
            if job["nodes"] <= room:
                room -= job["nodes"]
                behind.append(job)
    return {"foreground": first, "background": _numbers(behind)}


def share(weight, other):
    """Share of a CPU that a busy VM of this weight gets beside another busy one."""
    return weight / (weight + other)


def beside(use, seconds, work, got):
    """When a foreground and a background job on one node end."""
    fast = min(use, got)
    behind = 1 - fast
    alone = seconds * use / fast
    if work <= behind * alone:
        # The background ends first; from then on the foreground has all that it uses.
        then = work / behind
        return [then + seconds - then * fast / use, then]
    return [alone, alone + work - behind * alone]
