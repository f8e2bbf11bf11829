"""Interleaved pairs and the interval of their median ratio, for every benchmark that compares us with a peer.

One round times every contender once, in a random order, so that drift of the machine hits all alike. The ratio of a
peer to us is taken within each round; its median comes with a 95 % bootstrap interval, and a claim "at least B times"
holds only where the lower end of that interval is at least B.
"""
import random
import statistics


def interleave(contenders, rounds, warmups=1, seed=0):
    """contenders: {name: function that returns seconds (or any cost)}. Returns {name: [cost of each round]}."""
    order = list(contenders)
    source = random.Random(seed)
    for _ in range(warmups):
        for name in order:
            contenders[name]()
    costs = {name: [] for name in order}
    for _ in range(rounds):
        source.shuffle(order)
        for name in order:
            costs[name].append(contenders[name]())
    return costs


def median_interval(values, samples=10000, level=0.95, seed=0):
    """Bootstrap percentile interval of the median."""
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(samples))
    tail = (1 - level) / 2
    return medians[int(tail * samples)], medians[min(samples - 1, int((1 - tail) * samples))]


def compare(costs, ours, peer):
    """How many times our speed the peer's cost is: {ratio, low, high, pairs, ours, peer} (medians)."""
    ratios = [theirs / own for own, theirs in zip(costs[ours], costs[peer])]
    low, high = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "low": low, "high": high, "pairs": len(ratios),
            "ours": statistics.median(costs[ours]), "peer": statistics.median(costs[peer])}


def verdict(result, bar):
    return "holds" if result["low"] >= bar else "FAILS"
