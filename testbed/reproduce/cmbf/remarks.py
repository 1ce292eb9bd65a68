"""Why claims about CMBF's figures do not come out, as far as is known (full size, five seeds)."""

from __future__ import annotations

from testbed.reproduce.cmbf.cell import ModelName

_SEEDS = "the means over the seeds say so at every load; seeds differ by more than these two do"

_WHY: dict[ModelName, dict[str, str]] = {
    "feitelson": {
        "CMBF and AMBF have worse": _SEEDS,
        "AMBF performs better": _SEEDS,
        "CMCBF and AMCBF significantly": "both are far ahead of FCFS, CMBF and AMBF in the mean. "
        "Of EASY they are ahead up to load 0.7, by 3 to 9 % in response; at 0.9 AMCBF is level "
        "with it and CMCBF 17 % behind: it keeps to the order of arrival, where EASY knows every "
        "running time exactly",
        "Consolidation uses": "below saturation everybody does all the work there is; what "
        "differs is how soon the last job ends",
        "At saturation": "+7 % and +4 %. The CPUs' busy time, with what is lost behind others, "
        "would be 45 % above EASY's; the text says too little to tell which is meant "
        "([0423](decisions/0423-cmbf-measured.md))",
        "AMCBF is slightly better": "in response time it is, at every load, by 1 to 16 % of the "
        "mean; in slowdown they are level",
        "In mean response": "so ordered are the means up to load 0.7; above, EASY is second",
        "In mean bounded": "so ordered are the means up to load 0.8, but for AMCBF and CMCBF, "
        "which are level; at 0.9 EASY is first",
    },
    "jann": {},
}


def why(model: ModelName, claim: str) -> str:
    """What is known of why a claim does not come out for a model; empty where nothing is."""
    return next((said for begins, said in _WHY[model].items() if claim.startswith(begins)), "")
