"""What VJE (arXiv 2602.05639) claims of one-class methods, and what their papers report. Figures are shares in [0, 1].
One that was recalled, not read, is called so."""

from search_spaces._claims import PAPER
from sweeper.spec import Claim, Side

JOINT, CHOSEN, TOLERANCE = "auroc_joint", "auroc_chosen", 0.02
FASHION = ("fashion",)
VJE = Side(JOINT, {"method": "vje"})


def _of(method: str, metric: str = CHOSEN) -> Side:
    return Side(metric, {"method": method})


ONE_CLASS_BENCHMARK = (
    Claim("VJE-24a", "VJE is better than SimCLR with the score that suits it", "Table 4", VJE, ">", _of("simclr"), published="0.903 > 0.879"),
    Claim("VJE-24b", "VJE is better than scores on pixels", "Table 4", VJE, ">", _of("pixels"), published="0.903 > 0.648"),
    Claim("ONE-01", "the mean of VJE", "VJE, Table 4", VJE, "~", 0.903, TOLERANCE, PAPER, "0.903"),
    Claim("ONE-02", "the mean of OneClassSVM on pixels, recalled", "OCSVM", _of("pixels", "auroc_ocsvm_raw_z"), "~", 0.640, TOLERANCE, PAPER, "0.640"),
    Claim("ONE-02", "the mean of OneClassSVM on pixels, recalled and chosen on test images", "OCSVM", _of("pixels", "auroc_ocsvm_raw_z"), "~", 0.928, TOLERANCE, FASHION, "0.928"),
    Claim("ONE-03", "the mean of a kernel density on pixels", "Deep SVDD", _of("pixels", "auroc_kde_raw_z"), "~", 0.648, TOLERANCE, PAPER, "0.648"),
    Claim("ONE-04", "the mean of SimCLR with a score", "CSI", _of("simclr"), "~", 0.879, TOLERANCE, PAPER, "0.879"),
)  # fmt: skip
