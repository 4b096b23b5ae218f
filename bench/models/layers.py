"""The width of the project's own networks."""


def scaled(channels: int, width: float) -> int:
    """Scale `channels` by `width` to an even number, at least 2; width 1 keeps even `channels`."""
    return max(2, 2 * round(channels * width / 2))
