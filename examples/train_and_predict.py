"""Train on the built-in birds in frozen mode, reload, and ask why. Takes some seconds: images are small.

python examples/train_and_predict.py [FOLDER]
"""

import sys
from pathlib import Path

import dprotonet as dp

out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
birds = dp.DataConfig(species=4, train_per_species=20, val_per_species=5, test_per_species=5, image_size=96)
learning = dp.TrainingConfig(mode="frozen", augmentations=1)
dp.train(dp.Config(data=birds, training=learning), out, overwrite=True)

model = dp.load(out)
prediction = model.predict(dp.Birds(species=4, per_species=1, split="test", size=96)[0].image)
print(f"{prediction.class_name} ({prediction.probability:.0%}), because it looks like")
for item in prediction.evidence[:3]:
    points = f"{item.similarity:.3f} × {item.weight:.2f} = {item.contribution:.3f}"
    print(f"  {item.class_name} #{item.prototype} of {item.source}: {points}")
