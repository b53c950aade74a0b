"""The papers that the sweeps repeat, and their tables, figures and sections in the order in which one reads them."""

from search_spaces import _assumptions as assumed
from sweeper.definition.paper import Paper

PAPERS = {
    "vje": Paper(
        assumed.VJE,
        "Joint Embedding Variational Bayes",
        {
            "abstract": "other data sets, and out-of-distribution detection (version 3)",
            "3, 4": "the model: one variance, a polar likelihood, a stop-gradient",
            "Table 1": "a linear probe on ImageNet",
            "Table 2": "k-NN and a linear probe on CIFAR-10",
            "Fig. 3": "k-NN while training",
            "5.2": "a projector, blur and other data sets",
            "Fig. 4": "one-class detection over the KL weight and the degrees of freedom",
            "Table 3": "one-class detection class by class",
            "5.3": "scores of one-class detection, and what the posterior says",
            "Table 4": "one-class methods side by side",
            "Table 5": "the degrees of freedom, up to the Gaussian",
            "Table 6": "accuracy without terms of the loss",
            "Table 7": "the posterior's variance without terms of the loss",
            "5.4": "heavy tails and the radial term",
            "A": "scores by samples of the posterior",
        },
    ),
    "simvae": Paper(
        assumed.SIMVAE,
        "A Probabilistic Model to explain Self-Supervised Representation Learning",
        {
            "1": "what the introduction claims",
            "3": "the model: reconstruction, and what discriminative methods lack",
            "Figs. 2, 3": "reconstructions and samples",
            "Table 1": "class accuracy by an MLP probe and k-NN",
            "5": "content over all data sets",
            "Fig. 4": "style that representations keep",
            "A.5": "what discriminative losses do",
            "A.7": "learning rates",
            "Table 5": "class accuracy by a linear probe and a mixture",
            "Table 6": "clusters",
            "Fig. 6": "the strength of the augmentation",
            "Fig. 7": "the number of views",
            "Fig. 8": "the likelihood's variance",
            "Table 7": "reconstruction error and Frechet distance",
            "Fig. 9": "samples of every class",
            "A.8": "further ablations",
        },
    ),
    "gmje": Paper(
        assumed.GMJE,
        "Gaussian Joint Embeddings For Self-Supervised Representation Learning",
        {
            "1, 2": "what the introduction and the background say of earlier methods",
            "3": "one Gaussian: collapse, and its remedies",
            "4": "mixtures: prototypes, densities, particles",
            "Figs. 4 to 7, 5.1": "conditional densities of three branches",
            "Fig. 8, 5.2.1": "a queue compared with a bank of particles",
            "Table 1, 5.2.2": "linear probes on CIFAR-10",
            "Table 2": "volume and spread of densities of representations",
            "Figs. 9, 10, 5.3": "images sampled from densities of representations",
            "6, 7": "discussion",
            "D to P": "appendices: derivations, and collapses that they predict",
        },
    ),
}
"""Name in commands -> paper."""
