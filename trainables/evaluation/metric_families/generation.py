"""Reconstructions, samples, and the densities that are sampled: the families of their metrics, by name."""

from trainables.evaluation.metric_families.family import MetricFamily

FAMILIES = {
    "reconstruction_mse": MetricFamily(
        "Squared error of reconstructed test images, the mean over images and pixels.",
        "minimize",
        "a number of at least 0, for pixels in [0, 1]",
        at_end=True,
    ),
    "frechet_digits": MetricFamily(
        "Fréchet distance of 500 generated images from the test images of digits, in the last hidden layer of a small "
        "classifier of digits. It depends on the number of images, so it is always of 500, and null for fewer. It does "
        "not compare with FID.",
        "minimize",
        "a number of at least 0",
        at_end=True,
        may_be_undefined=True,
    ),
    "fid": MetricFamily(
        "Fréchet Inception distance of generated images from test images.",
        "minimize",
        "a number of at least 0",
        at_end=True,
    ),
    "sample_accuracy": MetricFamily(
        "Share of generated images that a classifier assigns to the class they were generated for.",
        "maximize",
        at_end=True,
    ),
    "diversity": MetricFamily(
        "Variance of the pixels over generated images, divided by that over test images: below 1 the samples are "
        "too much alike.",
        unit="a number of at least 0",
        at_end=True,
    ),
    "density_volume": MetricFamily(
        "Log-determinant of the covariance of a component of a density of unit representations, the mean over "
        "components. A large volume is no sign of good samples.",
        unit="a real number, for D dimensions at most -D log D for covariances whose trace is at most 1",
        at_end=True,
    ),
    "density_trace": MetricFamily(
        "Trace of the covariance of a component of a density of unit representations, the mean over components.",
        unit="a number of at least 0, at most 1 for covariances of unit vectors",
        at_end=True,
    ),
    "spread": MetricFamily(
        "Distance between the means of two components of a density of unit representations, the mean over pairs. "
        "Null for one component.",
        unit="a number of at least 0, for K means on the unit sphere at most sqrt(2 K / (K - 1))",
        at_end=True,
        may_be_undefined=True,
    ),
    "sample_confident": MetricFamily(
        "Share of images decoded from samples of a density for which a classifier of real images gives a class at "
        "least the probability density_confidence.",
        "maximize",
        at_end=True,
    ),
    "sample_coverage": MetricFamily(
        "Entropy of the classes of the images that sample_confident counts, over the logarithm of the number of "
        "classes: 1 if all classes are equally frequent, 0 for a single one or no such image.",
        "maximize",
        "a number in [0, 1]",
        at_end=True,
    ),
}
