"""Your answers. A job is a dict; its number says in which order the jobs have arrived:

    {"job": 4, "nodes": 4, "length": 5}     needs 4 nodes for 5 minutes
    "ends"      of a running job, for easy: when it will have ended
    "arrives"   for schedule: when it arrives
    "cpu"       for tiers: the share of its node's CPU that each of its processes uses

Queues are in order of arrival; the order of running jobs is any. Lists of jobs that you return are
lists of their numbers, in any order. Python's standard library is all that your code may import.
"""


def by_hand():
    """When each job of the example runs: {"cmbf": {"1": [[start, end], …], …}, "ambf": {…}}."""
    return {"cmbf": {}, "ambf": {}}


def fcfs(queue, running, nodes):
    """The jobs that start now, first come, first served."""
    return []


def easy(queue, running, nodes, now):
    """The jobs that start now, with EASY backfilling."""
    return []


def victims(later, needed):
    """The jobs that CMBF preempts out of `later` for so many nodes more."""
    return []


def cmbf(queue, running, nodes):
    """The jobs that run after an event: those that start and those that are not preempted."""
    return []


def ambf(queue, running, nodes):
    """The same in AMBF."""
    return []


def schedule(jobs, nodes):
    """When each job runs under CMBF: {"1": [[start, end], …], …}. Resuming costs nothing."""
    return {}


def tiers(queue, foreground, background, nodes):
    """The jobs in each tier after an event, in CMCBF."""
    return {"foreground": [], "background": []}


def share(weight, other):
    """The share of a CPU that a VM of this weight gets beside one of weight `other`, both busy."""
    return 0


def beside(use, seconds, work, got):
    """When two jobs on one node end that begin together: [foreground's, background's].

    Alone, the first uses `use` of the node's CPU for `seconds`, and the second all of it for `work`
    seconds. `got`: the share of the CPU that the foreground gets where both want all of it.
    """
    return [0, 0]
