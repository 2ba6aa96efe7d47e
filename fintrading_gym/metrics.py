"""What an episode earned, said in numbers: arrays in, a float out, numpy alone.

Every function takes the *earned* log returns r first, shape (T,), one a day, costs already taken off. Returns,
drawdowns and shares are fractions (0.05 is five per cent), a year has 252 days, the risk-free rate is 0.

Wrong input raises a ValueError of one line: not 1-D, NaN, infinite, beyond LARGEST, or arrays of different lengths.
Good input gives a finite float, always: where a formula has no value (no days, no variance, no losing day) the
docstring names the number that stands in for it, and growth is cut at e**600, so that ratios of it stay finite.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DAYS_PER_YEAR = 252
SQRT_YEAR = math.sqrt(DAYS_PER_YEAR)
LARGEST = 1e6  # |ln| of the ratio of any two doubles is below 1455: more is no log return, and could overflow a sum
LARGEST_GROWTH = 600.0  # e**600 is 4e260: a double, also after a division by NOISE
NOISE = 1e-12  # ln(p1/p0) carries errors of 1e-16 and real prices move by 1e-7 or more: below this a deviation is none
TIE = 1e-9  # two sums of the same daily returns, in any order, differ by less
BLOCK = 1 << 15  # random policies played at once: about 1 MB of arrays, which stays in the processor's cache

SELL, HOLD, BUY = 0, 1, 2  # the action indices; index - 1 is the position a trade leads to


def cumulative_return(log_returns: ArrayLike) -> float:
    """Sum of the log returns, CR.

    Formula: sum(r). Unit: log return over the whole series, not annualised. Empty: 0.0; constant c: T x c.
    Source: FinMem (arXiv 2311.13743), eq. 7.
    """
    return float(_series("cumulative_return", log_returns).sum())


def simple_return(log_returns: ArrayLike) -> float:
    """What one unit of money has gained: the cumulative return in its simple form.

    Formula: exp(sum(r)) - 1, the exponent cut at 600. Unit: fraction, not annualised. Empty: 0.0.
    Source: definition of the log return; `empyrical.cum_returns_final` of exp(r) - 1.
    """
    return _growth(cumulative_return(_series("simple_return", log_returns)))


def annualized_return(log_returns: ArrayLike) -> float:
    """Compound growth a year at the mean daily pace.

    Formula: exp(252 x mean(r)) - 1, the exponent cut at 600. Unit: fraction a year, annualised. Empty: 0.0;
    constant c: exp(252 c) - 1. Source: `empyrical.annual_return` of exp(r) - 1. One lucky day reads as an absurd year.
    """
    r = _series("annualized_return", log_returns)
    return _growth(DAYS_PER_YEAR * float(r.mean())) if r.size else 0.0


def daily_volatility(log_returns: ArrayLike) -> float:
    """Sample standard deviation of the log returns, DV.

    Formula: std(r, ddof=1). Unit: log return a day, not annualised. Empty or one day: 0.0. Constant: exactly
    0.0, where constant means std <= 1e-12 x max(1, max|r|), since np.std([0.1] * 3) is 1e-17.
    Source: FinMem, section IV-C.
    """
    return _volatility(_series("daily_volatility", log_returns))


def annualized_volatility(log_returns: ArrayLike) -> float:
    """Daily volatility scaled to a year, AV.

    Formula: std(r, ddof=1) x sqrt(252). Unit: log return a year, annualised. Empty, one day or constant: 0.0.
    Source: FinMem, eq. 9; `empyrical.annual_volatility`.
    """
    return daily_volatility(_series("annualized_volatility", log_returns)) * SQRT_YEAR


def sharpe_ratio(log_returns: ArrayLike) -> float:
    """Mean over volatility, for a year, at a risk-free rate of 0.

    Formula: sqrt(252) x mean(r) / std(r, ddof=1). Unit: none, annualised. Empty, one day or constant (zero
    volatility as `daily_volatility` has it): 0.0, also when the constant is a loss. Source: FinMem, eq. 8, with the
    annualisation of `empyrical.sharpe_ratio`; the paper's own variant is in `paper_summary`.
    """
    return _sharpe(_series("sharpe_ratio", log_returns))


def sortino_ratio(log_returns: ArrayLike) -> float:
    """Mean over downside deviation, for a year, at a required return of 0.

    Formula: sqrt(252) x mean(r) / sqrt(mean(min(r, 0)**2)), the inner mean over all days. Unit: none, annualised.
    Empty, one day, or no losing day (deviation <= 1e-12): 0.0, which then means "undefined", not "poor"; constant
    c < 0: -sqrt(252). Source: `empyrical.sortino_ratio`, which says NaN or infinity where this says 0.0.
    """
    r = _series("sortino_ratio", log_returns)
    downside = float(np.sqrt(np.mean(np.minimum(r, 0.0) ** 2))) if r.size >= 2 else 0.0
    return float(r.mean()) / downside * SQRT_YEAR if downside > NOISE else 0.0


def calmar_ratio(log_returns: ArrayLike) -> float:
    """Annualised return over the maximum drawdown.

    Formula: (exp(252 x mean(r)) - 1) / max_drawdown. Unit: none, annualised. Empty or never a loss (drawdown
    <= 1e-12): 0.0, which then means "undefined". Source: `empyrical.calmar_ratio` of exp(r) - 1.
    """
    r = _series("calmar_ratio", log_returns)
    drawdown = max_drawdown(r)
    return annualized_return(r) / drawdown if drawdown > NOISE else 0.0


def max_drawdown(log_returns: ArrayLike) -> float:
    """Deepest fall of the equity from a peak before it, MDD.

    Formula: max over t of 1 - E_t / max(E_0..E_t), with E_t = exp(r_1 + .. + r_t) and the start E_0 = 1 included.
    Unit: positive fraction in [0, 1], not annualised. Empty or never a loss: 0.0. Constant c < 0: 1 - exp(T x c).
    Source: FinMem, eq. 10; `empyrical.max_drawdown` of exp(r) - 1, with the sign turned.
    """
    return _drawdown(_series("max_drawdown", log_returns))


def hit_rate(log_returns: ArrayLike) -> float:
    """Share of winning days among the days that earned anything.

    Formula: #(r > 0) / #(r != 0). Unit: fraction, not annualised. Empty or flat (no day counts): 0.0.
    Source: `quantstats.stats.win_rate`.
    """
    r = _series("hit_rate", log_returns)
    decided = np.count_nonzero(r)
    return float(np.count_nonzero(r > 0) / decided) if decided else 0.0


def exposure(log_returns: ArrayLike, positions: ArrayLike) -> float:
    """Mean size of the position.

    Formula: mean |position|. Unit: position (1.0: in the market every day), not annualised. Empty: 0.0.
    Source: this project; quantstats counts days of non-zero return instead.
    """
    _, held = _paired("exposure", log_returns, positions, "positions")
    return _mean(np.abs(held))


def turnover(log_returns: ArrayLike, positions: ArrayLike) -> float:
    """Mean change of the position a day, what costs are paid on.

    Formula: mean |position_i - position_(i-1)|, the one before the first being 0; a flip counts 2. Unit: position
    a day, not annualised. Empty: 0.0; constant position p: |p| / T. Source: this project, as `cost_bps` counts.
    """
    _, held = _paired("turnover", log_returns, positions, "positions")
    return _mean(np.abs(np.diff(held, prepend=0.0)))


def discipline(log_returns: ArrayLike, valid: ArrayLike) -> float:
    """Share of decisions that the agent really took.

    Formula: #valid / #decisions, `valid` being booleans (or 0 and 1), one a day. Unit: fraction, not annualised.
    Empty: 0.0, as nothing was decided. Source: this project.
    """
    return _mean(_judged("discipline", log_returns, valid)[1])


def components(log_returns: ArrayLike, valid: ArrayLike) -> dict[str, float]:
    """The four parts of the evaluation's composite, each in [0, 1], higher is better.

    Formula: cum_return = clip(0.5 + CR/2, 0, 1); sharpe = clip((Sharpe + 1)/3, 0, 1);
    stability = 1 - clip(MDD, 0, 1); discipline. Unit: none; Sharpe is annualised, CR and MDD are of the whole series.
    Empty: 0.5, 1/3, 1, 0. Constant: its Sharpe is 0, hence 1/3. Source: this project.
    """
    return _components(*_judged("components", log_returns, valid))


def fintrading_score(log_returns: ArrayLike, valid: ArrayLike) -> float:
    """The evaluation's composite.

    Formula: unweighted mean of the four `components`. Unit: none, in [0, 1], not annualised. Doing nothing,
    validly: 17/24 = 0.7083, more than a random policy gets, so never read it alone. Empty: 11/24.
    Source: this project.
    """
    return sum(_components(*_judged("fintrading_score", log_returns, valid)).values()) / 4


def luck(
    log_returns: ArrayLike,
    market: ArrayLike,
    shares: ArrayLike,
    *,
    overnight: ArrayLike | None = None,
    hold: str = "keep",
    cost_bps: float = 0.0,
    policies: int = 100_000,
    seed: int = 0,
) -> float:
    """Share of random policies of the agent's own activity that did at least as well.

    Formula: #(CR_random >= CR_agent - 1e-9) / policies; a random policy draws each day's action anew, by `shares`,
    and is settled as `earned` does it. Unit: fraction, not annualised. Empty: 1.0; zero market without costs: 1.0 for
    a return of 0. Source: this project.

    Read it like a one-sided p-value: at 0.03, three in a hundred coin-tossers who buy, hold and sell as often as this
    agent earn as much. It says nothing of an agent that always does the same (1.0), the best of k tries has to be
    read as 1 - (1 - luck)**k, and an agent that trades in streaks is compared with policies that do not.

    Monte Carlo error: sqrt(p (1 - p) / policies), 0.0005 at p = 0.03 and at most 0.0016 with 100,000 policies.
    A result of 0 means below 3 / policies (95 % bound), not impossible. The same seed gives the same number.

    Args:
        log_returns: (T,) what the agent earned on these days.
        market: (T,) log return of the stock, close to close.
        shares: frequencies of (sell, hold, buy), summing to 1.
        overnight: (T,) the part of `market` before the fill, see `earned`.
        hold: "keep" (hold keeps the position) or "flat" (hold is position 0 that day).
        cost_bps: cost of one unit of change of position.
        policies: how many random policies to play.
        seed: of the random generator.
    """
    r = _series("luck", log_returns)
    before, after, cost = _settlement("luck", market, overnight, hold, cost_bps)
    if r.size != after.size:
        raise ValueError(f"luck: log_returns has {r.size} days, market {after.size}")
    sell, idle, buy = _shares("luck", shares)
    count = _count("luck", "policies", policies)
    if 1.0 in (sell, idle, buy):  # all policies play the same
        count = 1
    rng = np.random.default_rng(seed)
    target = cumulative_return(r) - TIE
    as_good = 0
    for done in range(0, count, BLOCK):
        totals = _random_totals(rng, min(BLOCK, count - done), (sell, sell + idle), before, after, hold, cost)
        as_good += int(np.count_nonzero(totals >= target))
    return as_good / count


def earned(
    market: ArrayLike,
    actions: ArrayLike,
    *,
    overnight: ArrayLike | None = None,
    hold: str = "keep",
    cost_bps: float = 0.0,
) -> tuple[NDArray[np.int8], Floats]:
    """Settle a sequence of actions by the rules of the environment.

    Formula: r_i = old_i x overnight_i + new_i x (market_i - overnight_i) - cost_bps x 1e-4 x |new_i - old_i|, where
    old and new are the positions before and after day i's action; the first old is 0, the end is not closed.
    Unit: log return a day, not annualised. Empty: two empty arrays. Source: this project.

    Args:
        market: (T,) log return of the stock, close to close.
        actions: (T,) 0 sell, 1 hold, 2 buy.
        overnight: (T,) log return from the close to the fill, which the old position earns; None: fill at the close.
        hold: "keep" (hold keeps the position) or "flat" (hold is position 0 that day).
        cost_bps: cost of one unit of change of position, in 1e-4 of log return.

    Returns:
        (T,) int8 positions after each action, and (T,) float64 earned log returns.
    """
    before, after, cost = _settlement("earned", market, overnight, hold, cost_bps)
    chosen = _series("earned", actions, "actions")
    if chosen.size != after.size:
        raise ValueError(f"earned: market has {after.size} days, actions {chosen.size}")
    _among("earned", "actions", chosen, (SELL, HOLD, BUY))
    new = chosen.astype(np.int8) - np.int8(1)
    if hold == "keep" and new.size:
        # the day of the last trade up to each day; before the first one it is day 0, whose hold is position 0 as well
        new = new[np.maximum.accumulate(np.where(new != 0, np.arange(new.size), 0))]
    old = np.concatenate([np.zeros(1, np.int8), new])[:-1]
    return new, old * before + new * after - cost * np.abs(new - old)


def hindsight(
    market: ArrayLike,
    *,
    overnight: ArrayLike | None = None,
    hold: str = "keep",
    cost_bps: float = 0.0,
) -> tuple[NDArray[np.int8], float]:
    """The best that could have been done, by somebody who knew every price.

    Formula: dynamic programme from the last day back over the positions -1, 0, +1, exact for both hold rules, both
    fills and any cost. Unit: log return over the series, not annualised. Empty or zero market: holds, 0.0. Equally
    good actions: hold before buy before sell. Source: this project; arguments as in `earned`.

    Returns:
        (T,) int8 actions of a best sequence, and the cumulative return that `earned` settles them to.
    """
    actions = _best_actions(*_settlement("hindsight", market, overnight, hold, cost_bps), hold)
    _, log_returns = earned(market, actions, overnight=overnight, hold=hold, cost_bps=cost_bps)
    return actions, cumulative_return(log_returns)


def summary(log_returns: ArrayLike, positions: ArrayLike, valid: ArrayLike) -> dict[str, float]:
    """Every scalar metric of one episode under its function's name, and the composite.

    `score` is `fintrading_score`; `score_cum_return`, `score_sharpe`, `score_stability` and `score_discipline` are its
    `components`. `luck` is not here: it needs the market.

    Formula: each as its function says. Unit: fractions and ratios. Annualised: the ratios and what is so called.
    Empty: 0.0, except score 11/24 and its components 0.5, 1/3, 1, 0. Source: this project.
    """
    r, held = _paired("summary", log_returns, positions, "positions")
    _, flags = _judged("summary", log_returns, valid)
    of_returns = (
        cumulative_return,
        simple_return,
        annualized_return,
        daily_volatility,
        annualized_volatility,
        sharpe_ratio,
        sortino_ratio,
        calmar_ratio,
        max_drawdown,
        hit_rate,
    )
    return {
        **{metric.__name__: metric(r) for metric in of_returns},
        "exposure": exposure(r, held),
        "turnover": turnover(r, held),
        "discipline": discipline(r, flags),
        "score": fintrading_score(r, flags),
        **{f"score_{name}": part for name, part in components(r, flags).items()},
    }


def paper_summary(log_returns: ArrayLike, prices_count: int) -> dict[str, float]:
    """The five columns of FinMem's Table I as that paper's own code computes them, quirks included.

    Formula: cumulative_return 100 x sum(r); daily_volatility 100 x std(r, ddof=1); annualized_volatility that
    x sqrt(252); sharpe_ratio CR / (prices_count / 252) / AV, which counts prices where it means returns; max_drawdown
    of the product of (1 + r), which compounds log returns as if they were simple. Unit: per cent, but for the Sharpe
    ratio; AV and Sharpe are annualised. Zero volatility: Sharpe 0.0, where the paper's code raises. Empty: all 0.0.
    A log return below -1 makes that equity negative and the drawdown exceed 100 (down to -1e300 of the peak).
    Source: FinMem's data-pipeline/07-metrics.py, which reproduces its buy-and-hold rows within 1e-4.

    Args:
        log_returns: (T,) earned log returns, a hold day being 0 in the paper.
        prices_count: prices in the window, T + 1 for a whole one.
    """
    r = _series("paper_summary", log_returns)
    years = _count("paper_summary", "prices_count", prices_count) / DAYS_PER_YEAR
    volatility = annualized_volatility(r)
    of_peak = lowest = 1.0  # equity as a part of its peak so far, which never overflows upwards
    for growth in (1.0 + r).tolist():
        of_peak = max(min(of_peak * growth, 1.0), -1e300)
        lowest = min(lowest, of_peak)
    return {
        "cumulative_return": 100 * cumulative_return(r),
        "sharpe_ratio": cumulative_return(r) / years / volatility if volatility else 0.0,
        "daily_volatility": 100 * daily_volatility(r),
        "annualized_volatility": 100 * volatility,
        "max_drawdown": 100 * (1.0 - lowest),
    }


# The formulas on arrays that are known to be good: an episode's end asks for several of one array.


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else 0.0


def _volatility(r: Floats) -> float:
    if r.size < 2:
        return 0.0
    around = r - r.sum() / r.size
    deviation = math.sqrt((around * around).sum() / (r.size - 1))  # np.std, bit for bit, in half its time
    constant = deviation <= NOISE * LARGEST and deviation <= NOISE * max(1.0, float(np.abs(r).max()))
    return 0.0 if constant else deviation


def _sharpe(r: Floats) -> float:
    volatility = _volatility(r)
    return float(r.mean()) / volatility * SQRT_YEAR if volatility else 0.0


def _drawdown(r: Floats) -> float:
    if not r.size:
        return 0.0
    level = r.cumsum()  # in logs, so that no equity overflows
    peak = np.maximum.accumulate(np.maximum(level, 0.0))  # the start, 0, is a peak too
    return abs(math.expm1((level - peak).min()))


def _components(r: Floats, flags: NDArray[Any]) -> dict[str, float]:
    return {
        "cum_return": _unit(0.5 + float(r.sum()) / 2),
        "sharpe": _unit((_sharpe(r) + 1) / 3),
        "stability": 1 - _unit(_drawdown(r)),
        "discipline": _mean(flags),
    }


def _growth(log_return: float) -> float:
    return float(np.expm1(min(log_return, LARGEST_GROWTH)))


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _random_totals(
    rng: np.random.Generator,
    count: int,
    bounds: tuple[float, float],  # a draw below the first sells, one from the second on buys
    before: Floats,
    after: Floats,
    hold: str,
    cost: float,
) -> Floats:
    """Cumulative returns of `count` random policies, (count,)."""
    total = np.zeros(count)
    draw = np.empty(count, np.float32)
    old = np.zeros(count, np.int8)
    sell_below, buy_from = (np.float32(bound) for bound in bounds)
    for first, rest in zip(before.tolist(), after.tolist(), strict=True):
        rng.random(out=draw, dtype=np.float32)
        new = (draw >= buy_from).view(np.int8) - (draw < sell_below).view(np.int8)
        if hold == "keep":
            new += (new == 0) * old
        total += np.multiply(new, rest, dtype=np.float64)
        if first:
            total += np.multiply(old, first, dtype=np.float64)
        if cost:
            total -= np.multiply(np.abs(new - old), cost, dtype=np.float64)
        old = new
    return total


def _best_actions(before: Floats, after: Floats, cost: float, hold: str) -> NDArray[np.int8]:
    """The dynamic programme of `hindsight`: from the last day back, the best action from each position."""
    # the order of the actions settles ties, as max keeps the first of equals
    leads_to = {old: {HOLD: old if hold == "keep" else 0, BUY: 1, SELL: -1} for old in (-1, 0, 1)}
    future = dict.fromkeys(leads_to, 0.0)  # the most that the days after can still earn from each position
    plan: list[dict[int, int]] = []
    for first, rest in zip(reversed(before.tolist()), reversed(after.tolist()), strict=True):
        worth = {
            old: {a: old * first + new * rest - cost * abs(new - old) + future[new] for a, new in options.items()}
            for old, options in leads_to.items()
        }
        best = {old: max(values, key=values.__getitem__) for old, values in worth.items()}
        future = {old: worth[old][best[old]] for old in leads_to}
        plan.append(best)
    actions = np.empty(len(plan), np.int8)
    position = 0
    for day, best in enumerate(reversed(plan)):
        actions[day] = best[position]
        position = leads_to[position][best[position]]
    return actions


def _settlement(
    where: str, market: ArrayLike, overnight: ArrayLike | None, hold: str, cost_bps: float
) -> tuple[Floats, Floats, float]:
    """What one unit of the old and of the new position earns each day, and what one unit of change costs."""
    if hold not in ("keep", "flat"):
        raise ValueError(f"{where}: hold must be 'keep' or 'flat', not {hold!r}")
    if not isinstance(cost_bps, int | float | np.number) or not 0 <= cost_bps <= LARGEST:
        raise ValueError(f"{where}: cost_bps must be a number from 0 to {LARGEST:g}, not {cost_bps!r}")
    whole = _series(where, market, "market")
    before = np.zeros_like(whole) if overnight is None else _series(where, overnight, "overnight")
    if before.size != whole.size:
        raise ValueError(f"{where}: market has {whole.size} days, overnight {before.size}")
    return before, whole - before, cost_bps * 1e-4


def _shares(where: str, shares: ArrayLike) -> tuple[float, float, float]:
    parts = _series(where, shares, "shares")
    if parts.size != 3 or (parts < 0).any() or abs(parts.sum() - 1) > 1e-6:
        raise ValueError(f"{where}: shares must be (sell, hold, buy), none negative, sum 1, not {parts.tolist()}")
    sell, idle, buy = (parts / parts.sum()).tolist()
    return sell, idle, buy


def _count(where: str, name: str, value: int) -> int:
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{where}: {name} must be a whole number from 1 up, not {value!r}")
    return int(value)


def _series(where: str, values: ArrayLike, name: str = "log_returns") -> Floats:
    """`values` as a 1-D float64 array without a NaN, an infinity or a number no log return can be."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: {name} must be a 1-D array of numbers") from None
    if array.ndim != 1:
        raise ValueError(f"{where}: {name} must be 1-D, not of shape {array.shape}")
    fine = np.abs(array) <= LARGEST  # false for a NaN too
    if not fine.all():
        bad = int(fine.argmin())
        raise ValueError(f"{where}: {name}[{bad}] is {array[bad]}, not a number within +-{LARGEST:g}")
    return array


def _paired(where: str, log_returns: ArrayLike, values: ArrayLike, name: str) -> tuple[Floats, Floats]:
    r, other = _series(where, log_returns), _series(where, values, name)
    if r.size != other.size:
        raise ValueError(f"{where}: log_returns has {r.size} days, {name} {other.size}")
    return r, other


def _judged(where: str, log_returns: ArrayLike, valid: ArrayLike) -> tuple[Floats, NDArray[Any]]:
    r, flags = _series(where, log_returns), np.asarray(valid)
    if flags.dtype != np.bool_ or flags.shape != r.shape:
        r, flags = _paired(where, log_returns, valid, "valid")
        _among(where, "valid", flags, (0, 1))
    return r, flags


def _among(where: str, name: str, array: Floats, allowed: tuple[int, ...]) -> None:
    fine = np.isin(array, allowed)
    if not fine.all():
        bad = int(fine.argmin())
        raise ValueError(f"{where}: {name}[{bad}] is {array[bad]:g}, not one of {allowed}")
