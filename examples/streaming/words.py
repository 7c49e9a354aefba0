"""The model: continues a line with words that often follow each other in nursery rhymes."""

import collections
import random
import time
from collections.abc import Iterator

TEXT = """
twinkle twinkle little star how I wonder what you are up above the world so high like a diamond in
the sky . Mary had a little lamb its fleece was white as snow and everywhere that Mary went the
lamb was sure to go . Jack and Jill went up the hill to fetch a pail of water Jack fell down and
broke his crown and Jill came tumbling after . Humpty Dumpty sat on a wall Humpty Dumpty had a
great fall all the king's horses and all the king's men could not put Humpty together again . the
cow jumped over the moon the little dog laughed to see such sport and the dish ran away with the
spoon . little Miss Muffet sat on a tuffet eating her curds and whey there came a big spider who
sat down beside her and frightened Miss Muffet away .
"""
STEP = 0.02  # s: a larger model takes about as long for one word, however many lines it works on
LONGEST = 40  # words


class Words:
    """A Markov chain of words. The same line always has the same continuation."""

    def __init__(self, step: float = STEP) -> None:
        self._step = step
        self._followers = collections.defaultdict(list)
        words = TEXT.split()
        for word, follower in zip(words, words[1:] + words[:1], strict=True):
            self._followers[word].append(follower)

    def generate(self, lines: list[str]) -> Iterator[list[str | None]]:
        """Yield one more word for each line, and None for a line that has ended."""
        chances = [random.Random(line) for line in lines]
        last: list[str | None] = [(line.split() or ["."])[-1] for line in lines]
        for _ in range(LONGEST):
            time.sleep(self._step)
            last = [self._next(word, chance) for word, chance in zip(last, chances, strict=True)]
            if not any(last):
                return
            yield last

    def _next(self, word: str | None, chance: random.Random) -> str | None:
        if word is None:
            return None
        follower = chance.choice(self._followers.get(word) or ["the", "little"])
        return None if follower == "." else follower
