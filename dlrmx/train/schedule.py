"""The learning rates' schedule: a factor for each step, a pure function."""

from dlrmx.recipe.schema import Constant, WarmupHoldDecay


def rate_factor(schedule: Constant | WarmupHoldDecay, step: int) -> float:
    """What both learning rates are multiplied by at `step` (0 is the first).

    warmup_hold_decay rises linearly to 1 over `warmup` steps, stays for `hold`, and falls over `decay` steps n as
    ((decay - n) / decay) ** power, never below `floor` (MLPerf DLRM: power 2, floor 1e-7).
    """
    if isinstance(schedule, Constant):
        return 1.0
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    into_decay = step - schedule.warmup - schedule.hold
    if into_decay < 0 or schedule.decay == 0:
        return 1.0
    left = max(schedule.decay - into_decay, 0) / schedule.decay
    return max(float(left**schedule.power), schedule.floor)
