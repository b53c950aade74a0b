"""Names that other tools use for the keys, values, options and commands of this project, so that an error can suggest
ours."""

import re
from collections.abc import Mapping


def letters(name: str) -> str:
    """Normalise the spelling of a name: `Batch-Size` becomes `batchsize`."""
    return re.sub(r"[-_ .]", "", name).lower()


VISIBLE = (
    "a sweep trains on all GPUs that it sees; CUDA_VISIBLE_DEVICES=0,1 limits them, and --gpus-per-node those of a job "
    "of SLURM"
)
CONTINUES = "the same command continues a sweep"
IS_A_FILE = "a sweep is a Python file, which defines its own defaults"
SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("learningrate", "baselr", "initlr", "initiallr", "maxlr", "stepsize"), "lr"),
    **dict.fromkeys(("wd", "l2", "decay", "weightdecayrate"), "weight_decay"),
    **dict.fromkeys(("bs", "batch", "bsz", "trainbatchsize", "perdevicetrainbatchsize"), "batch_size"),
    **dict.fromkeys(("nepochs", "numepochs", "maxepochs", "numtrainepochs", "trainepochs", "epoch"), "epochs"),
    **dict.fromkeys(("randomseed", "randomstate", "manualseed", "globalseed"), "seed"),
    **dict.fromkeys(("optimizer", "optim", "opt"), "optimiser"),
    **dict.fromkeys(("lrscheduler", "scheduler", "schedule", "lrdecay"), "lr_schedule"),
    **dict.fromkeys(("warmup", "numwarmupepochs"), "warmup_epochs"),
    **dict.fromkeys(
        ("clip", "gradclip", "gradientclip", "gradientclipval", "maxgradnorm", "clipnorm"), "clip_grad_norm"
    ),
    **dict.fromkeys(("accumulategradbatches", "gradaccum", "gradientaccumulationsteps"), "accumulate"),
    **dict.fromkeys(("model", "algorithm", "algo", "modelname"), "method"),
    **dict.fromkeys(("backbone", "arch", "architecture", "network", "net"), "encoder"),
    **dict.fromkeys(("data", "datasetname", "ds"), "dataset"),
    **dict.fromkeys(("temperature", "temp"), "tau"),
    **dict.fromkeys(("earlystopping", "earlystoppingpatience"), "patience"),
    **dict.fromkeys(("transform", "transforms", "augment", "augmentations", "aug"), "augmentation"),
    **dict.fromkeys(("ntrials", "numsamples", "nsamples", "numtrials", "maxtrials", "maxevals"), "--trials"),
    **dict.fromkeys(("outputdir", "outdir", "output", "out", "logdir", "savedir", "resultdir", "results"), "--store"),
    **dict.fromkeys(("resultsdir", "storagepath", "storage", "defaultrootdir", "savepath"), "--store"),
    **dict.fromkeys(("datadir", "datapath", "dataroot", "datasetdir", "root"), "--data"),
    **dict.fromkeys(("dryrun", "dry"), "--plan"),
    **dict.fromkeys(("force", "overwrite", "restart", "scratch"), "--fresh"),
    **dict.fromkeys(("logger", "wandb", "mlflow", "tensorboard", "reportto"), "--track"),
    **dict.fromkeys(("timeout", "timebudget", "timelimit", "timebudgets", "maxtime"), "--hours"),
    **dict.fromkeys(("maxretries", "maxfailures"), "--retries"),
    **dict.fromkeys(("checkpointevery", "checkpointfreq", "saveinterval", "savefreq"), "--save-every"),
    **dict.fromkeys(("gpuspertrial", "resourcespertrial"), "--gpu-fraction"),
    **dict.fromkeys(("asha", "successivehalving", "sha"), "halving"),
    **dict.fromkeys(("train", "start", "launch", "fit", "tune", "optimize", "optimise"), "run"),
    **dict.fromkeys(("ls", "status", "show", "ps"), "list"),
    **dict.fromkeys(("delete", "remove", "del"), "rm"),
    **dict.fromkeys(("ui", "dashboard", "serve", "web", "board"), "view"),
    "bohb": "hyperband",
    **dict.fromkeys(("bayes", "bayesian", "bo", "gaussianprocess"), "gp"),
    **dict.fromkeys(("randomsearch", "randomsampler"), "random"),
    **dict.fromkeys(("seeds", "nseeds", "numseeds", "replicas"), "five seeds are --axis seed=0..4"),
    **dict.fromkeys(("gpus", "gpu", "numgpus", "ngpus", "gpuids", "devices", "device", "accelerator"), VISIBLE),
    **dict.fromkeys(("resume", "continue", "resumefrom"), CONTINUES),
    **dict.fromkeys(("config", "cfg", "configname", "configpath"), IS_A_FILE),
}
"""Normalised name (`letters`) of a key, value or option in other tools -> our name, or a sentence that explains it."""
