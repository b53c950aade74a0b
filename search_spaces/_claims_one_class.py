"""Claims of VJE (arXiv 2602.05639) about one-class methods, and the means that their papers report. Numbers are shares
in [0, 1]; those marked (recalled) were not read in the paper."""

from search_spaces._claims import PAPER
from sweeper.claims import Claim, Side

FASHION, ALL = ("fashion",), ("paper", "fashion", "digits")
TOLERANCE = 0.02


def _of(method: str, metric: str = "auroc_chosen") -> Side:
    """The mean of a method over classes and seeds, using the score chosen on validation images."""
    return Side(metric, {"method": method})


VJE = _of("vje", "auroc_joint")
ONE_CLASS_BENCHMARK = (
    Claim("VJE-24a", "VJE is better than rotation and translation prediction", "Table 4", VJE, ">", _of("rotation_prediction"), presets=ALL, published="0.903 > 0.898"),
    Claim("VJE-24b", "VJE is better than GOAD", "Table 4", VJE, ">", _of("goad"), presets=ALL, published="0.903 > 0.882"),
    Claim("VJE-24c", "VJE is better than GEOM", "Table 4", VJE, ">", _of("geom"), presets=ALL, published="0.903 > 0.860"),
    Claim("VJE-24d", "VJE is better than Deep SVDD", "Table 4", VJE, ">", _of("deep_svdd"), presets=ALL, published="0.903 > 0.648"),
    Claim("VJE-25", "a method with anomaly-specific signals, CSI, is better than VJE", "Table 4", _of("csi"), ">", VJE, presets=ALL, published="0.943 > 0.903"),
    Claim("ONE-01", "the mean of a kernel density on pixels", "Deep SVDD, Table 1", _of("pixels", "auroc_kde_raw_z"), "~", 0.648, TOLERANCE, PAPER, "0.648"),
    Claim("ONE-02", "the mean of OneClassSVM on pixels (recalled)", "DROCC", _of("pixels", "auroc_ocsvm_raw_z"), "~", 0.640, TOLERANCE, PAPER, "0.640"),
    Claim("ONE-03", "the mean of OneClassSVM on pixels (recalled; chosen on test images)", "GEOM", _of("pixels", "auroc_ocsvm_raw_z"), "~", 0.928, TOLERANCE, FASHION, "0.928"),
    Claim("ONE-04", "the mean of Deep SVDD", "Deep SVDD, Table 1", _of("deep_svdd", "auroc_distance"), "~", 0.648, TOLERANCE, PAPER, "0.648"),
    Claim("ONE-05", "the mean of Deep SVDD (recalled)", "Deep SVDD", _of("deep_svdd", "auroc_distance"), "~", 0.848, TOLERANCE, FASHION, "0.848"),
    Claim("ONE-06", "the mean of SimCLR with a score", "CSI", _of("simclr"), "~", 0.879, TOLERANCE, PAPER, "0.879"),
    Claim("ONE-07", "the mean of rotation and translation prediction", "Table 4; CSI", _of("rotation_prediction", "auroc_probability"), "~", 0.898, TOLERANCE, PAPER, "0.898"),
    Claim("ONE-08", "the mean of rotation and translation prediction (recalled)", "GOAD", _of("rotation_prediction", "auroc_probability"), "~", 0.932, TOLERANCE, FASHION, "0.932"),
    Claim("ONE-09", "the mean of GEOM", "CSI", _of("geom", "auroc_dirichlet"), "~", 0.860, TOLERANCE, PAPER, "0.860"),
    Claim("ONE-10", "the mean of GEOM (recalled)", "GOAD", _of("geom", "auroc_dirichlet"), "~", 0.935, TOLERANCE, FASHION, "0.935"),
    Claim("ONE-11", "the mean of GOAD", "GOAD", _of("goad", "auroc_log_probability"), "~", 0.882, TOLERANCE, PAPER, "0.882"),
    Claim("ONE-12", "the mean of GOAD (recalled)", "GOAD", _of("goad", "auroc_log_probability"), "~", 0.941, TOLERANCE, FASHION, "0.941"),
    Claim("ONE-13", "the mean of CSI", "CSI", _of("csi", "auroc_csi"), "~", 0.943, TOLERANCE, PAPER, "0.943"),
)  # fmt: skip
