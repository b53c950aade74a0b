"""The geometry of embeddings, posteriors and banks of particles: the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import MetricFamily

FAMILIES = {
    "effective_rank": MetricFamily(
        "Effective number of dimensions of the embeddings of test images: exp of the entropy of the eigenvalues of "
        "their covariance, over the sum of these. Like volume and trace it is of unit vectors, without "
        "augmentation, about their mean and with divisor N. The key `geometry` says whether these are "
        "representations or projections.",
        unit="a number of at least 1 and at most the dimensions D",
    ),
    "cosine": MetricFamily(
        "Cosine of the embeddings of two augmented views of a test image, the mean over images.",
        unit="a number in [-1, 1]",
    ),
    "volume": MetricFamily(
        "Log-determinant of the covariance of the unit embeddings of test images, after a share of 1e-6 of the "
        "isotropic covariance I/D is mixed in.",
        unit="a real number of at most -D log D, which isotropic embeddings of D dimensions have",
    ),
    "trace": MetricFamily(
        "Trace of the covariance of the unit embeddings of test images: 1 minus the squared length of their mean.",
        unit="a number in [0, 1]",
    ),
    "norm": MetricFamily(
        "Length of the embeddings of test images before they are scaled to unit length, the mean over images.",
        unit="a number of at least 0",
    ),
    "ess": MetricFamily(
        "Effective sample size of the pool of particles from which the next bank is drawn, 1 over the sum of the "
        "squared weights; the mean over the batches of an epoch. Copies of a particle count as different, see "
        "`bank_distinct`. Null for a queue, whose keys have no weights.",
        unit="a number of at least 1 and at most the particles of the bank plus the images of a batch",
    ),
    "bank_distinct": MetricFamily(
        "Share of different particles in a bank: how many it has without copies, over its size; the mean over the "
        "batches of an epoch. Null for a queue, whose keys are all different.",
    ),
    "bank_age": MetricFamily(
        "Age of the particles in a bank, the mean over particles and the batches of an epoch. Null for a queue.",
        unit="a number of at least 0, in steps since the batch that a particle comes from",
    ),
    "posterior_entropy": MetricFamily(
        "Entropy of the posterior, the mean over test images.", unit="a real number, in nats"
    ),
    "posterior_variance": MetricFamily(
        "Variance of the posterior summed over dimensions, the mean over test images.", unit="a number above 0"
    ),
    "var_mean": MetricFamily(
        "Variance of the posterior, the mean over dimensions and test images: near 0 it has collapsed, 1 is the "
        "prior's.",
        unit="a number above 0",
    ),
    "var_cv": MetricFamily(
        "Standard deviation over dimensions of the posterior's variance, divided by var_mean: 0 is isotropic. Null "
        "where var_mean is below 0.01.",
        unit="a number of at least 0",
        may_be_undefined=True,
    ),
}
