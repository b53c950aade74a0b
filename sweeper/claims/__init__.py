"""Claims of papers: what a sweep's file may say, and how the rows of a store judge it.

>>> from sweeper.claims import Claim, Side
>>> claim = Claim("X-01", "the best method beats chance", "Table 1", Side("knn_z", {}, "largest", "method"), ">", 0.1)
>>> claim.text
'max[method] knn_z > 0.1'

The rest of the service uses this package through `sweeper.claims.hook` alone, and only for a sweep that has claims.
"""

from sweeper.claims.claim import Claim, Filter, Side, Where

__all__ = ["Claim", "Filter", "Side", "Where"]
