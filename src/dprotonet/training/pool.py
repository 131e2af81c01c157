"""What ProtoPool minimises: the loss of ProtoPNet with the prototypes that slots hold as a class's own, and
slots of a class that hold different ones (Rymarczyk et al., 2022)."""

from torch import Tensor, nn

from dprotonet.inference.losses import LossTerms, PrototypeLoss, cluster_loss, separation_distance
from dprotonet.inference.pool import SlotHead
from dprotonet.network import DProtoNet
from dprotonet.training.objective import BatchLoss


class PoolObjective(nn.Module):
    """CrsEnt + λ1 Clst + λ2 Sep + λ3 l_w + L_orth.

    Deviation: the prototypes of a class are those that its slots choose at the moment; its code takes the K
    with the largest sum over slots, which the same prototype chosen twice fills up with others.
    """

    def __init__(self, network: DProtoNet, loss: PrototypeLoss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    @property
    def head(self) -> SlotHead:
        assert isinstance(self.network.head, SlotHead)
        return self.network.head

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        head, loss = self.head, self.loss
        evidence = self.network.evidence(inputs)
        logits = evidence.logits.float()
        own = head.owned(self.network.prototype_class)[labels]
        entropy = loss.entropy(logits, labels)
        near, far = cluster_loss(evidence.distances, own), separation_distance(evidence.distances, own)
        sparse = head.foreign(self.network.prototype_class)
        total = entropy + loss.cluster * near + loss.separation * far + loss.foreign * sparse
        step = BatchLoss(LossTerms(total, entropy, near, far, sparse), logits)
        return step.plus("orthogonality", head.orthogonality(), weight=1.0)
