"""The training loop (Algorithm 2) on accelerate: the same code on one CPU and on many GPUs.

`Engine.run` walks through the stages and yields events; it prints and saves nothing. Everything random is
seeded by (seed, epoch), so a run that goes on from a checkpoint is the run that was never killed.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, gather_object
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Adam, AdamW, Optimizer

from dprotonet.data.transforms import View
from dprotonet.errors import ComputationError
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.inference.several_labels import LabelHead
from dprotonet.network import BlackBox, DProtoNet, Network
from dprotonet.training.choose_objective import Extra, served, set_epoch, whole_objective
from dprotonet.training.evaluation import Validation, evaluate, share_of
from dprotonet.training.events import EpochDone, Event, PushDone, RoundDone, StepDone
from dprotonet.training.label_head import FITTED, fit_label_head
from dprotonet.training.memory import Piece, in_pieces, statistics_at_rest
from dprotonet.training.objective import BatchLoss, HeadObjective, Sums
from dprotonet.training.phases import (
    Judgement,
    Phase,
    Push,
    Stage,
    WeightDecay,
    half_cosine,
    is_phase,
    planned_epochs,
    pretraining,
)
from dprotonet.training.push import Projection, Pusher
from dprotonet.training.scores import ScoreViews, Scoring, score_views
from dprotonet.training.shared_norm import share_statistics
from dprotonet.training.views import (
    Key,
    Made,
    PairView,
    Sampling,
    ViewSource,
    derived_seed,
    epoch_keys,
    epoch_parts,
    label_tensor,
    load,
)


@dataclass
class Position:
    """How far training has come; with the network and the optimiser all that a checkpoint needs."""

    stage: int = 0
    epoch_in_stage: int = 0
    epoch: int = 0  # warm and joint epochs done
    tick: int = 0  # epochs of any kind done, for seeds
    steps: int | None = 0  # optimiser steps of any kind done; None after a checkpoint that did not count them
    best: float = -1.0  # validation accuracy, or balanced accuracy, of the model that is kept
    stale_rounds: int = 0
    round_open: bool = False  # a push whose last-layer phase or judgement is still to come


@dataclass(frozen=True)
class EngineSettings:
    """Plain numbers of the loop; `patience` counts pushes without a better validation accuracy."""

    seed: int = 0
    batch: int = 60
    workers: int = 0
    patience: int = 2
    views_per_epoch: int = 1  # of each training image
    weight_decay: WeightDecay = field(default_factory=WeightDecay)
    rate_share: Callable[[int, int], float] = half_cosine  # of epoch and epochs
    optimizer: type[Adam] | type[AdamW] = Adam
    frozen_norm: bool = False  # BatchNorm statistics of a backbone that learns stay what they are
    accumulate: int = 1  # in how many pieces a process computes its part of a batch
    recomputes: bool = False  # whether a backward pass runs parts of the network anew
    sampling: Sampling = epoch_keys  # which views of the training images an epoch has
    balanced: bool = False  # the model that is kept is the best by balanced accuracy
    scratch: Path = Path(tempfile.gettempdir())  # for scores that are too many for memory

    @property
    def at_once(self) -> int:
        """Images that are computed at a time."""
        return -(-self.batch // self.accumulate)


@dataclass
class Engine:
    """Trains `network` on views of the training split, watching the validation split.

    Deviation: Algorithm 2 says SGD, Section 4.3 Adam with four learning rates; we use Adam.
    Unstated: whether Adam's memory outlives a push. Ours starts afresh in each phase: prototypes have jumped.
    """

    network: Network
    train_views: ViewSource
    val_views: ViewSource
    accelerator: Accelerator
    pusher: Pusher
    loss: PrototypeLoss = field(default_factory=PrototypeLoss)
    extra: Extra = field(default_factory=Extra)
    settings: EngineSettings = field(default_factory=EngineSettings)
    position: Position = field(default_factory=Position)
    projection: Projection | None = None
    optimizer: Optimizer | None = None
    epochs: int = 0  # warm and joint ones in all, of the stages that run
    pretrained: int = 0  # of them without classes
    resume_optimizer: dict | None = None  # state to load into the optimiser of the first stage
    _val_scores: ScoreViews | None = field(default=None, init=False)  # while only the head learns

    def run(self, stages: Sequence[Stage]) -> Iterator[Event]:
        """All events from the current position to the end, or until patience is exhausted."""
        self.network.to(self.accelerator.device)
        pieces = self.settings.accumulate > 1 or self.settings.recomputes  # which processes may have unlike
        if self.accelerator.num_processes > 1 and not pieces:
            share_statistics(self.network)
        self.epochs, self.pretrained = planned_epochs(stages), pretraining(stages)
        if self.position == Position():
            self.fit_head()
        while not self._out_of_patience():
            stage = stages[self.position.stage] if self.position.stage < len(stages) else None
            if self.position.round_open and not _is_last_layer(stage):
                yield self._round()
            elif stage is None:
                return
            elif isinstance(stage, Push):
                yield self.push()
            elif isinstance(stage, Judgement):
                self._open_round()
            else:
                yield from self._phase(stage)
                self._advance()

    def _out_of_patience(self) -> bool:
        return not self.position.round_open and self.position.stale_rounds >= self.settings.patience

    # ── stages ──

    def _advance(self) -> None:
        self.position.stage += 1
        self.position.epoch_in_stage = 0
        self.optimizer = None

    def _phase(self, phase: Phase) -> Iterator[Event]:
        objective, views = self._head_setting() if _is_last_layer(phase) else self._whole_setting(phase)
        prepare_parts(self.network, phase, frozen_norm=self.settings.frozen_norm)
        optimizer = self._optimizer(phase)
        if self.resume_optimizer is not None:
            restore_optimizer(optimizer, self.resume_optimizer)
            self.resume_optimizer = None
        model, self.optimizer = self.accelerator.prepare(objective, optimizer)
        for _ in range(self.position.epoch_in_stage, phase.epochs):
            prepare_parts(self.network, phase, frozen_norm=self.settings.frozen_norm)
            self._set_rates(phase)
            share = (self.position.epoch_in_stage + 1) / phase.epochs
            set_epoch(objective, self.extra, epoch=self.position.epoch + 1, share=share)
            yield from self._epoch(phase, model, views)
        self._val_scores = None
        self.network.requires_grad_(True)
        self.accelerator.free_memory()  # forget the wrappers of this phase

    def _epoch(self, phase: Phase, model: nn.Module, views: ViewSource) -> Iterator[Event]:
        started = time.perf_counter()
        self.position.tick += 1
        if phase.name != "last":
            self.position.epoch += 1
        torch.manual_seed(
            derived_seed(self.settings.seed, self.position.tick, self.accelerator.process_index)
        )
        parts = epoch_parts(
            views,
            seed=self.settings.seed,
            epoch=self.position.tick,
            batch=self.settings.batch,
            share=share_of(self.accelerator),
            per_image=1 if isinstance(views, ScoreViews) else self.settings.views_per_epoch,
            sampling=epoch_keys if isinstance(views, ScoreViews) else self.settings.sampling,
        )
        batches = Made(lambda number: parts[number].keys, range(len(parts)))
        sums = Sums()
        for number, view in enumerate(load(views, batches, workers=self._workers(views))):
            sums += self.step(model, view, phase=phase, weight=parts[number].weight)
            if self.position.steps is not None:
                self.position.steps += 1
            loss, accuracy = sums.mean("loss"), sums.accuracy
            yield StepDone(phase.name, self.position.epoch, number + 1, len(batches), loss, accuracy)
        self.position.epoch_in_stage += 1
        self._share_buffers()
        total: Sums = sum(gather_object([sums]), Sums())
        terms = {name: total.mean(name) for name in total.terms}
        val = self.validate().accuracy
        seconds, position = time.perf_counter() - started, self.position
        yield EpochDone(phase.name, position.epoch, terms, total.accuracy, val, seconds, position.steps)

    def _share_buffers(self) -> None:
        """BatchNorm statistics of the first process to all, so that every process validates one network."""
        for buffer in self.network.buffers():
            buffer.copy_(broadcast(buffer))

    def _open_round(self) -> None:
        self.position.round_open = True
        self._advance()

    def _round(self) -> RoundDone:
        found = self.validate()
        judged = found.judged
        self.position.round_open = False
        improved = judged > self.position.best
        kept = judged >= self.position.best  # small splits tie often; of equals the later learned longer
        self.position.best = max(judged, self.position.best)
        self.position.stale_rounds = 0 if improved else self.position.stale_rounds + 1
        return RoundDone(
            self.position.epoch, found.accuracy, found.loss, kept, self._out_of_patience(), found.predictions
        )

    # ── what an experiment may change in a subclass: see benchmarks/joint_changes.py ──

    def step(self, model: nn.Module, view: View | PairView, *, phase: Phase, weight: float) -> Sums:
        """A step of the optimiser; gradients of several pieces add up, and processes meet at the last one."""
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        sums = Sums()
        *others, last = in_pieces(view, self.settings.accumulate)
        for piece in others:
            with self.accelerator.no_sync(model):
                sums += self.backward(model, piece, phase=phase, weight=weight)
        sums += self.backward(model, last, phase=phase, weight=weight)
        self.optimizer.step()
        if phase.learning_rates.head > 0 and isinstance(self.network, DProtoNet):
            self.network.head.after_step()
        return sums

    def backward(self, model: nn.Module, piece: Piece, *, phase: Phase, weight: float) -> Sums:
        """Gradients of a piece of a batch, whose images weigh `weight`; what is logged of it."""
        device = self.accelerator.device
        inputs, labels = piece.inputs.to(device), piece.labels.to(device)
        more = () if piece.places is None else (piece.places.to(device),)
        with self.accelerator.autocast():
            step: BatchLoss = model(inputs, labels, *more)
        _must_be_finite(step.named, phase, self.position.epoch)
        with statistics_at_rest(model) if self.settings.recomputes else nullcontext():
            self.accelerator.backward(step.terms.total * (weight * piece.share))
        right = self.loss.right(step.logits, labels)
        terms = {name: term.item() * len(labels) for name, term in step.named.items()}
        return Sums(terms, right, len(labels))

    def parameter_groups(self, phase: Phase) -> list[dict]:
        """Parameters of the parts that learn, with their rate and decay."""
        parts = self.network.parts()
        groups = [
            {
                "params": list(parts[name].parameters()),
                "lr": phase.learning_rates.of(name),
                "weight_decay": self.settings.weight_decay.of(name),
            }
            for name in parts
            if phase.learning_rates.of(name) > 0
        ]
        return [group for group in groups if group["params"]]

    def push(self) -> PushDone:
        """Prototypes become region vectors of training images; accuracies before and after it."""
        started = time.perf_counter()
        before = self.validate().accuracy
        self.projection = self.pusher(self.prototyped, self.train_views)
        self.fit_head()
        after = self.validate().accuracy
        seconds = time.perf_counter() - started
        self._open_round()  # before the event goes out: a checkpoint taken then must not push again
        return PushDone(self.position.epoch, before, after, self.projection, seconds)

    def fit_head(self) -> None:
        """Where images have several labels: weights and biases of the head, by the scores as they are."""
        head = getattr(self.network, "head", None)
        if isinstance(head, LabelHead):
            found = self._scores(self.train_views)
            some = torch.arange(0, len(found), -(-len(found) // FITTED))
            labels = label_tensor(found.labels)[some]
            fit_label_head(head, found.scores[some], labels, self.prototyped.prototype_class)

    def validate(self) -> Validation:
        """How the network does on the validation split, as it is now."""
        known = self._val_scores
        predictions = evaluate(
            self.network if known is None else self.prototyped.head,
            self.val_views if known is None else known,
            accelerator=self.accelerator,
            batch=self.settings.at_once,
            workers=self._workers(self.val_views) if known is None else 0,
        )
        return Validation(predictions, self.settings.balanced)

    # ── parts ──

    def _whole_setting(self, phase: Phase) -> tuple[nn.Module, ViewSource]:
        objective = whole_objective(self.network, self.loss, self.extra, phase)
        return objective, served(self.train_views, self.network)

    @property
    def prototyped(self) -> DProtoNet:
        """The network, where it has prototypes."""
        if isinstance(self.network, BlackBox):
            raise TypeError("a black box has no prototypes: plan its stages without pushes")
        return self.network

    def _head_setting(self) -> tuple[nn.Module, ViewSource]:
        """Only the head learns, so scores are taken once, of an epoch's views; of plain ones to validate.

        Unstated: which views the last-layer stage sees. Those of one epoch, the same in all its epochs.
        """
        network = self.prototyped
        objective = HeadObjective(network.head, self.loss, prototype_class=network.prototype_class)
        self._val_scores = self._scores(self.val_views)
        per_image = self.settings.views_per_epoch
        keys = self.settings.sampling(self.train_views, epoch=self.position.tick + 1, per_image=per_image)
        return objective, self._scores(self.train_views, keys)

    def _scores(self, views: ViewSource, keys: Sequence[Key] | None = None) -> ScoreViews:
        settings = self.settings
        scoring = Scoring(self.accelerator, settings.scratch, settings.at_once, self._workers(views))
        return score_views(self.prototyped, views, scoring, keys=keys)

    def _optimizer(self, phase: Phase) -> Optimizer:
        return self.settings.optimizer(self.parameter_groups(phase))

    def _set_rates(self, phase: Phase) -> None:
        """The share of the rates that falls to the coming epoch; the last-layer stage keeps its rate."""
        share = 1.0 if phase.name == "last" else self._rate_share(phase)
        assert self.optimizer is not None
        for group, part in zip(self.optimizer.param_groups, self.parameter_groups(phase), strict=True):
            group["lr"] = part["lr"] * share

    def _rate_share(self, phase: Phase) -> float:
        """Epochs without classes have a schedule of their own."""
        coming, before = self.position.epoch + 1, self.pretrained
        if is_phase(phase, "pretrain"):
            return self.settings.rate_share(coming, before)
        return self.settings.rate_share(coming - before, self.epochs - before)

    def _workers(self, views: ViewSource) -> int:
        return 0 if isinstance(views, ScoreViews) else self.settings.workers


def prepare_parts(network: Network, phase: Phase, *, frozen_norm: bool = False) -> None:
    """Learning parts to train mode; frozen parts keep weights and BatchNorm statistics.

    With `frozen_norm` a backbone that learns keeps its BatchNorm statistics too, and uses them.

    Unstated: what BatchNorm does while the backbone learns. Its statistics of a few dozen steps are neither
    those of the batches nor of ImageNet, so that another network is judged than the one that learned; frozen,
    joint training of parts gains instead of losing (docs/parts.md).
    """
    for name, part in network.parts().items():
        learns = phase.learning_rates.of(name) > 0
        part.train(learns)
        part.requires_grad_(learns)
        if name == "backbone" and frozen_norm:
            for module in part.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()


def restore_optimizer(optimizer: Optimizer, state: dict) -> None:
    """Load per-parameter state into a fresh optimiser; its groups and rates are those of the phase."""
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _is_last_layer(stage: Stage | None) -> bool:
    return is_phase(stage, "last")


def _must_be_finite(terms: Mapping[str, Tensor], phase: Phase, epoch: int) -> None:
    if torch.isfinite(terms["loss"]):
        return
    values = ", ".join(f"{name} {term.item():.3g}" for name, term in terms.items())
    raise ComputationError(
        f"the loss is not finite in {phase.name} epoch {epoch} ({values}); "
        "lower the learning rates, or use --mixed-precision no"
    )
