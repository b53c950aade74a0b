"""Probes: classifiers of frozen features. Linear probes are trained with SGD (VJE, Tables 1 and 2); linear and MLP
probes with Adam (SimVAE, Tables 1 and 5). Linear probes on a few labels per class (GMJE) distinguish representations
that reach the same accuracy with all labels.

Shapes: K members, N bank images, M test images, D features, C classes, B images of a batch, E epochs; S probes of each
member, Q = K * S probes in the order of the members; P parameters of a probe, I inputs and O outputs of one of its
layers; L labelled images for a few-label probe.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics.evaluator import (
    PROJECTION,
    EvaluationSet,
    Floats,
    ProbeData,
    RepresentationEvaluator,
    Representations,
    all_finite,
)
from trainables.validation import above, at_least, between, checked, whole

TOP = 5
"""Linear probes trained by SGD also report their top-5 accuracy if there are more than 5 classes."""
MOMENTUM = 0.9
EPS = 1e-8
"""Adam's epsilon."""
CONSTANT = 1e-6
"""Maximum standard deviation, relative to the mean, of a feature that is constant up to float32 rounding."""
STARTS = 3
"""Probes of each kind that Adam trains per member, from different initial weights. A metric is the mean over them. In
`simvae_content --preset digits` the linear and MLP probes take 4 % of a trial's time for SimVAE, 8 % for the VAE and 9
% for SimCLR, 1.1 to 1.4 times as long as with one start."""
MAX_STEPS, CHECKED_EVERY = 5000, 25
TOLERANCE = 1e-4
"""The few-label fit ends when the largest gradient of any weight falls below this share of its initial value."""


# --- Training ---


@checked
class Schedule:
    """Epochs, learning rate and batches of the probes of all members."""

    epochs: Annotated[int, at_least(1)]
    lr: Annotated[float, above(0)]
    batch_size: Annotated[int, at_least(1)]
    """Images per batch, or all images if there are fewer. An incomplete last batch is dropped."""
    generator_of_epoch: Callable[[int], torch.Generator]
    """Draws the order of the images in an epoch (counted from 0). All members share the order."""


class Standardisation(NamedTuple):
    """Mean and standard deviation of each feature over a member's bank images, used to standardise features."""

    mean_K1D: Tensor
    std_K1D: Tensor
    """1 for a constant feature, so that its rounding errors do not become a signal."""

    @classmethod
    def of(cls, bank_KND: Tensor) -> Standardisation:
        """Compute mean and biased standard deviation (divisor N) in float32, like scikit-learn's StandardScaler."""
        # Computed per member, so that a member's statistics are bit-equal in any stack.
        moments = [torch.var_mean(bank_ND.float(), 0, correction=0, keepdim=True) for bank_ND in bank_KND]
        mean_K1D, std_K1D = torch.stack([mean for _, mean in moments]), torch.stack([var.sqrt() for var, _ in moments])
        return cls(mean_K1D, torch.where(std_K1D <= CONSTANT * mean_K1D.abs(), 1.0, std_K1D))


Layers = Sequence[tuple[Tensor, Tensor]]
"""Weights `[Q, O, I]` and biases `[Q, O, 1]` of each layer. All layers but the last are followed by ReLU."""
Step = Callable[[Tensor, Tensor], None]
"""Updates the parameters of all probes from one batch of features `[Q, B, D]` and labels `[B]`."""


@torch.no_grad()
def fit_by_sgd(
    bank_KND: Tensor,
    labels_N: Tensor,
    classes: int,
    schedule: Schedule,
    standardisation: Standardisation | None = None,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Train K softmax regressions and return their weights `[K, C, D]` and biases `[K, C, 1]`.

    They start at zero and are trained with SGD, momentum 0.9 and weight decay. The learning rate decays from the
    schedule's value to 0 along half a cosine. With a `standardisation` the weights apply to standardised features.
    Raises ValueError unless `classes >= 1`.
    """
    whole("classes", classes, 1)
    members, images, features = bank_KND.shape
    parameters_KP = torch.zeros(members, classes * (features + 1), device=bank_KND.device)
    velocity_KP = torch.zeros_like(parameters_KP)
    (layer,), (velocity,) = (_layers(flat_KP, (features, classes)) for flat_KP in (parameters_KP, velocity_KP))
    steps = schedule.epochs * (images // min(schedule.batch_size, images))
    counter = itertools.count()

    def step(x_KBD: Tensor, labels_B: Tensor) -> None:
        error_KCB = _errors(_forward([layer], x_KBD)[-1], labels_B)
        for velocity_KCI, input_KBI in zip(velocity, (x_KBD, x_KBD.new_ones(*x_KBD.shape[:2], 1)), strict=True):
            velocity_KCI.baddbmm_(error_KCB, input_KBI, beta=MOMENTUM, alpha=1 / len(labels_B))
        if weight_decay:
            velocity_KP.add_(parameters_KP, alpha=weight_decay)
        share = 0.5 * (1 + math.cos(math.pi * next(counter) / steps))
        parameters_KP.add_(velocity_KP, alpha=-schedule.lr * share)

    _train(bank_KND, labels_N, schedule, step, standardisation=standardisation)
    return layer


@torch.no_grad()
def fit_by_adam(
    bank_KND: Tensor,
    labels_N: Tensor,
    widths: Sequence[int],
    schedule: Schedule,
    *,
    initial_generators: Sequence[torch.Generator],
    starts: int = 1,
    after_epoch: Callable[[Layers], None] = lambda layers: None,
) -> Layers:
    """Train Q classifiers, `starts` per member, and return their layers.

    `widths` are `(D, C)` for linear probes and `(D, H, C)` for MLPs with H hidden units. `initial_generators[k]` draws
    the initial weights of member k's probes, one probe after the other, as torch.nn.Linear does. Adam trains them with
    a constant learning rate. After each epoch `after_epoch` is called with the layers.
    """
    drawn = [_initial_parameters(widths, generator) for generator in initial_generators for _ in range(starts)]
    parameters_QP = torch.stack(drawn).to(bank_KND.device)
    parameters_QP.grad = torch.empty_like(parameters_QP)
    layers, gradients = _layers(parameters_QP, widths), _layers(parameters_QP.grad, widths)
    optimiser = torch.optim.Adam([parameters_QP], schedule.lr, eps=EPS, fused=True)

    def step(x_QBD: Tensor, labels_B: Tensor) -> None:
        _differentiate(layers, x_QBD, labels_B, out=gradients)
        optimiser.step()

    _train(bank_KND, labels_N, schedule, step, starts=starts, after_epoch=lambda: after_epoch(layers))
    return layers


def _train(
    bank_KND: Tensor,
    labels_N: Tensor,
    schedule: Schedule,
    step: Step,
    *,
    starts: int = 1,
    standardisation: Standardisation | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> None:
    """Call `step` with each batch of the schedule, repeating the features of each member `starts` times, in float32 on
    the bank's device. Probes minimise the cross-entropy and do not affect each other."""
    members, images, features = bank_KND.shape
    size = min(schedule.batch_size, images)
    labels_N = labels_N.to(bank_KND.device)
    # Each batch is gathered into the same buffer, which stays in the cache, and the bank is never copied as a whole.
    gathered_KBD = bank_KND.new_empty(members, size, features)
    for epoch in range(schedule.epochs):
        generator = schedule.generator_of_epoch(epoch)
        order_N = torch.randperm(images, generator=generator, device=generator.device).to(bank_KND.device)
        for batch_B in order_N[: images - images % size].split(size):
            x_KBD = torch.index_select(bank_KND, 1, batch_B, out=gathered_KBD).float()
            if standardisation:  # in place: a standardised copy of the bank could be too large for the memory
                x_KBD.sub_(standardisation.mean_K1D).div_(standardisation.std_K1D)
            step(x_KBD if starts == 1 else x_KBD.repeat_interleave(starts, 0), labels_N[batch_B])
        after_epoch()


def _initial_parameters(widths: Sequence[int], generator: torch.Generator) -> Tensor:
    """Weights and biases `[P]` of a probe, uniform in `±1 / sqrt(I)`."""
    parts = []
    for inputs, outputs in itertools.pairwise(widths):
        bound = 1 / math.sqrt(inputs)
        for count in (outputs * inputs, outputs):
            parts.append(torch.empty(count, device=generator.device).uniform_(-bound, bound, generator=generator))
    return torch.cat(parts)


def _layers(flat_QP: Tensor, widths: Sequence[int]) -> Layers:
    """Views of the weights and biases in `flat_QP`: all parameters share one tensor, so that one kernel updates them.
    Outputs come before inputs, and classes before images, because with few classes this makes the products and the
    softmax 3 to 10 times faster on a CPU."""
    shapes = [shape for inputs, outputs in itertools.pairwise(widths) for shape in ((outputs, inputs), (outputs, 1))]
    parts = flat_QP.split([math.prod(shape) for shape in shapes], dim=1)
    views = [part.view(len(flat_QP), *shape) for part, shape in zip(parts, shapes, strict=True)]
    return list(zip(views[::2], views[1::2], strict=True))


def _forward(layers: Layers, x_QBD: Tensor) -> list[Tensor]:
    """Inputs `[Q, I, B]` of each layer, and last the logits `[Q, C, B]`."""
    values = [x_QBD.mT]
    for weight_QOI, bias_QO1 in layers[:-1]:
        values.append(torch.baddbmm(bias_QO1, weight_QOI, values[-1]).relu_())
    weight_QOI, bias_QO1 = layers[-1]
    return [*values, torch.baddbmm(bias_QO1, weight_QOI, values[-1])]


def _errors(logits_QCB: Tensor, labels_B: Tensor) -> Tensor:
    """Gradients `[Q, C, B]` of each image's cross-entropy with respect to its logits."""
    error_QCB = logits_QCB.softmax(1)
    index_Q1B = labels_B.expand(len(error_QCB), 1, -1)
    return error_QCB.scatter_add_(1, index_Q1B, error_QCB.new_full((1, 1, 1), -1.0).expand_as(index_Q1B))


def _differentiate(layers: Layers, x_QBD: Tensor, labels_B: Tensor, out: Layers) -> None:
    """Write the gradients of the mean cross-entropy into `out`."""
    *inputs, logits_QCB = _forward(layers, x_QBD)
    error_QOB = _errors(logits_QCB, labels_B).div_(len(labels_B))
    for depth in reversed(range(len(layers))):
        input_QIB, (weight_out_QOI, bias_out_QO1) = inputs[depth], out[depth]
        torch.bmm(error_QOB, input_QIB.mT, out=weight_out_QOI)
        torch.sum(error_QOB, 2, keepdim=True, out=bias_out_QO1)
        if depth:
            error_QOB = torch.bmm(layers[depth][0].mT, error_QOB).mul_(input_QIB.sign())  # the derivative of ReLU


def fit_few_labels(x_SLD: Tensor, labels_SL: Tensor, classes: int) -> Tensor:
    """Weights `[S, C, D]` that minimise the cross-entropy summed over L images plus half their squared norm, like
    scikit-learn's LogisticRegression (C=1) without intercept: by accelerated descent, whose step and momentum follow
    from the largest curvature."""
    target_SLC = F.one_hot(labels_SL, classes).to(x_SLD.dtype)
    curvature_S11 = 1 + torch.linalg.matrix_norm(x_SLD @ x_SLD.mT, 2)[:, None, None] / 2
    root_S11 = curvature_S11.sqrt()
    momentum_S11 = (root_S11 - 1) / (root_S11 + 1)
    weight_SCD = ahead_SCD = x_SLD.new_zeros(len(x_SLD), classes, x_SLD.shape[-1])
    start = math.inf
    for step in range(MAX_STEPS):
        error_SLC = (x_SLD @ ahead_SCD.mT).softmax(-1) - target_SLC
        gradient_SCD = error_SLC.mT @ x_SLD + ahead_SCD
        if step % CHECKED_EVERY == 0:
            largest = gradient_SCD.abs().max().item()
            start = largest if step == 0 else start
            if largest <= TOLERANCE * start:
                break
        before_SCD, weight_SCD = weight_SCD, ahead_SCD - gradient_SCD / curvature_S11
        ahead_SCD = weight_SCD + momentum_S11 * (weight_SCD - before_SCD)
    return weight_SCD


# --- Accuracies ---


class Accuracies(NamedTuple):
    """Shares in [0, 1] of the labelled test images that are classified correctly, averaged over each member's probes,
    `[K]`."""

    last: Floats
    """After the last epoch."""
    best: Floats
    """After each probe's best epoch. Biased upwards, because the epoch is chosen on the test images."""


@torch.no_grad()
def sgd_accuracies(
    data: ProbeData,
    schedule: Schedule,
    *,
    standardize: bool = False,
    weight_decay: float = 0.0,
    top: Sequence[int] = (1,),
) -> dict[int, Floats]:
    """Train probes with `fit_by_sgd` and return their top-t accuracy on the test images, `[K]`, for each `t` of `top`.

    `standardize` first standardises all features by the mean and standard deviation of the bank's features. Among
    classes with equal logits the lowest index ranks first. NaN for a member with a feature or logit that is not finite.
    Raises ValueError unless every `t` is in 1..classes.
    """
    for t in top:
        between(1, data.classes).check("top", t)
    standardisation = Standardisation.of(data.bank_KND) if standardize else None
    weight_KCD, bias_KC1 = fit_by_sgd(
        data.bank_KND, data.bank_labels_N, data.classes, schedule, standardisation, weight_decay
    )
    labels_M = data.test_labels_M.to(data.test_KMD.device)
    shares = []
    for member, test_MD in enumerate(data.test_KMD):
        x_MD = test_MD.float()
        if standardisation:
            x_MD = (x_MD - standardisation.mean_K1D[member]) / standardisation.std_K1D[member]
        logits_MC = torch.addmm(bias_KC1[member].T, x_MD, weight_KCD[member].T)
        shares.append(shares_of_top(logits_MC, labels_M, top))
    return {t: data.where_finite(shares_K) for t, shares_K in zip(top, np.transpose(shares), strict=True)}


def shares_of_top(logits_MC: Tensor, labels_M: Tensor, top: Sequence[int]) -> list[float]:
    """Share of images whose label is among the `t` classes with the largest logits, for each `t` in `top`. NaN if a
    logit is not finite."""
    if not all_finite(logits_MC):
        return [math.nan] * len(top)
    own_M1 = logits_MC.gather(1, labels_M[:, None])
    lower_MC = torch.arange(logits_MC.shape[1], device=logits_MC.device) < labels_M[:, None]
    rank_M = ((logits_MC > own_M1) | ((logits_MC == own_M1) & lower_MC)).sum(1)
    return [(rank_M < t).double().mean().item() for t in top]


@torch.no_grad()
def adam_accuracies(
    data: ProbeData,
    schedule: Schedule,
    *,
    hidden: Sequence[int],
    initial_generators: Sequence[torch.Generator],
    starts: int = 1,
) -> Accuracies:
    """Train probes with `fit_by_adam` and return their accuracy on the test images.

    Images with a negative label (UNLABELLED) are left out. NaN for a member with a feature or logit that is not finite,
    and for all members if no bank image or no test image has a label. Raises ValueError unless the number of classes,
    `starts` and all widths in `hidden` are at least 1.
    """
    for name, value in (("classes", data.classes), ("starts", starts), *(("hidden", width) for width in hidden)):
        whole(name, value, 1)
    bank_KND, bank_labels_N = _labelled(data.bank_KND, data.bank_labels_N)
    test_KMD, test_labels_M = _labelled(data.test_KMD.float(), data.test_labels_M)
    if not (len(bank_labels_N) and len(test_labels_M)):
        return Accuracies(*np.full((2, len(bank_KND)), math.nan))
    test_QMD = test_KMD.repeat_interleave(starts, 0)
    share_by_epoch: list[Tensor] = []
    fit_by_adam(
        bank_KND,
        bank_labels_N,
        (bank_KND.shape[2], *hidden, data.classes),
        schedule,
        initial_generators=initial_generators,
        starts=starts,
        after_epoch=lambda layers: share_by_epoch.append(_share_correct(layers, test_QMD, test_labels_M)),
    )
    shares_EKS = torch.stack(share_by_epoch).unflatten(1, (-1, starts)).cpu().numpy()
    return Accuracies(*(data.where_finite(shares_KS.mean(1)) for shares_KS in (shares_EKS[-1], shares_EKS.max(0))))


def _share_correct(layers: Layers, test_QMD: Tensor, labels_M: Tensor) -> Tensor:
    """Share `[Q]` of images whose label has the largest logit. NaN for a probe with a logit that is not finite."""
    logits_QCM = _forward(layers, test_QMD)[-1]
    share_Q = (logits_QCM.max(1).indices == labels_M).double().mean(1)
    return torch.where(logits_QCM.isfinite().all(2).all(1), share_Q, math.nan)


def _labelled(x_KND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The features and labels of the images whose label is not negative."""
    labels_N = labels_N.to(x_KND.device)
    labelled_N = labels_N >= 0
    return (x_KND, labels_N) if labelled_N.all() else (x_KND[:, labelled_N], labels_N[labelled_N])


def draw_labelled(labels_N: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Indices `[L]` of `per_class` images of each class that occurs, grouped by class. Raises ValueError if a class has
    fewer."""
    order_N = torch.randperm(len(labels_N), generator=generator)
    shuffled_N = labels_N.cpu()[order_N]
    drawn = [order_N[shuffled_N == label][:per_class] for label in shuffled_N.unique()]
    fewest = min(map(len, drawn))
    if fewest < per_class:
        raise ValueError(
            f"each class must have at least {per_class} labelled images, but the smallest class has {fewest}"
        )
    return torch.cat(drawn)


@torch.no_grad()
def few_label_accuracies(
    data: ProbeData, draws: Sequence[Tensor], raise_if_stopped: Callable[[], None] = lambda: None
) -> Floats:
    """Accuracy `[K]` on the test images, averaged over probes fitted to each draw of labelled images separately.

    Features are standardised over the whole bank, which needs no labels. NaN for a member with a feature that is not
    finite.
    """
    standardisation, labels_M = Standardisation.of(data.bank_KND), data.test_labels_M.to(data.test_KMD.device)
    drawn_SL = torch.stack([*draws]).to(data.bank_KND.device)
    labels_SL = data.bank_labels_N.to(data.bank_KND.device)[drawn_SL]
    shares = []
    for member, finite in enumerate(data.finite_K):
        raise_if_stopped()
        if not finite:
            shares.append(math.nan)
            continue
        bank_ND, test_MD = data.bank_KND[member], data.test_KMD[member]
        mean_1D, std_1D = standardisation.mean_K1D[member], standardisation.std_K1D[member]
        weight_SCD = fit_few_labels(
            _with_constant((bank_ND[drawn_SL].float() - mean_1D) / std_1D), labels_SL, data.classes
        )
        logits_SMC = _with_constant((test_MD.float() - mean_1D) / std_1D) @ weight_SCD.mT
        shares.append((logits_SMC.argmax(-1) == labels_M).double().mean().item())
    return np.array(shares)


def _with_constant(x: Tensor) -> Tensor:
    """The features and a constant 1, whose weight is the intercept."""
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


# --- Evaluators ---


class ScheduledProbes(RepresentationEvaluator):
    """Base class of probes that are trained in batches."""

    def schedule(self, name: str, epochs: int, lr: float, batch_size: int) -> Schedule:
        """A schedule that ends when the trial is stopped. Its image orders depend on `name` and the data set."""

        def generator_of_epoch(epoch: int) -> torch.Generator:
            self.images.raise_if_stopped()
            return seeded_generator(name, self.config.data.dataset, epoch)

        return Schedule(epochs, lr, batch_size, generator_of_epoch)


class LinearProbes(ScheduledProbes):
    """Accuracy of linear probes trained by SGD, at the end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not config.evaluation.probe_epochs or not (last or config.embeddings.probe_curve):
            return ()
        vectors = (*method.representations, *([PROJECTION] if config.embeddings.compare_projection else []))
        return [f"probe{suffix}_{vector}" for vector in vectors for _, suffix in probe_top_k(classes)]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name, data in vectors.probed(tested).items():
            metrics |= self._accuracies(name, data)
        return metrics

    def _accuracies(self, name: str, data: ProbeData) -> dict[str, Floats]:
        evaluation, tops = self.config.evaluation, probe_top_k(data.classes)
        batch_size = min(evaluation.probe_batch_size, len(data.bank_labels_N))
        lr = evaluation.probe_lr * batch_size / 256
        schedule = self.schedule("probe", evaluation.probe_epochs, lr, batch_size)
        shares = sgd_accuracies(
            data,
            schedule,
            standardize=evaluation.probe_standardize,
            weight_decay=evaluation.probe_weight_decay,
            top=[top for top, _ in tops],
        )
        return {f"probe{suffix}_{name}": shares[top] for top, suffix in tops}


def probe_top_k(classes: int) -> list[tuple[int, str]]:
    """Each k for which probes report the top-k accuracy, and the suffix of the metric's name."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]


class FewLabelProbes(RepresentationEvaluator):
    """Accuracy of linear probes trained on a few labels per class, on z and, if requested, on the projection; at the
    end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        labels = config.embeddings.few_labels
        if not labels or not (last or config.embeddings.probe_curve):
            return ()
        return [f"probe_{labels}", *([f"probe_{labels}_{PROJECTION}"] if config.embeddings.compare_projection else [])]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images, embeddings = self.images, self.config.embeddings
        draws = [
            draw_labelled(
                images.bank_labels,
                embeddings.few_labels,
                seeded_generator("few labels", self.config.data.dataset, index),
            )
            for index in range(embeddings.few_label_draws)
        ]
        suffixes = {"z": "", PROJECTION: f"_{PROJECTION}"}
        return {
            f"probe_{embeddings.few_labels}{suffixes[name]}": few_label_accuracies(data, draws, images.raise_if_stopped)
            for name, data in vectors.probed(tested).items()
            if name in suffixes
        }


class AdamProbes(ScheduledProbes):
    """Base class of the probes that are trained with Adam."""

    def accuracies(self, data: ProbeData, seeds: Sequence[int], mlp: bool) -> Accuracies:
        """Accuracies `[K]` of probes after the last and the best epoch. The members' seeds determine the initial
        weights."""
        content, dataset = self.config.content, self.config.data.dataset
        return adam_accuracies(
            data,
            self.schedule(
                "content probe",
                content.content_probe_epochs,
                content.content_probe_lr,
                content.content_probe_batch_size,
            ),
            hidden=(content.content_probe_width or data.bank_KND.shape[-1],) if mlp else (),
            initial_generators=[seeded_generator("content probe weights", dataset, seed) for seed in seeds],
            starts=STARTS,
        )


class ContentProbes(AdamProbes):
    """Accuracy of a linear probe and an MLP probe that predict the class."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not (last and config.content.content_probe_epochs):
            return ()
        return "probe_linear", "probe_linear_best", "probe_mlp", "probe_mlp_best"

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        data = vectors.probed(tested)["z"]
        for name, mlp in (("probe_linear", False), ("probe_mlp", True)):
            last, best = self.accuracies(data, vectors.seeds, mlp)
            metrics |= {name: last, f"{name}_best": best}
        return metrics


class StyleProbes(AdamProbes):
    """Accuracy of an MLP probe for each requested attribute, and the mean over several attributes."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        names = config.content.style_names if last else ()
        return [*(f"style_{name}" for name in names), *(["style_mean"] if len(names) > 1 else [])]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name in self.config.content.style_names:
            data = replace(
                vectors.probed(tested)["z"],
                bank_labels_N=self.images.bank_attributes[name],
                test_labels_M=tested.attributes[name],
                classes=self.images.dataset.attributes[name].classes,
            )
            metrics[f"style_{name}"] = self.accuracies(data, vectors.seeds, mlp=True).last
        return metrics if len(metrics) < 2 else {**metrics, "style_mean": np.mean([*metrics.values()], axis=0)}
