"""A trained model for other programs: ONNX, torch.export, and what an exported model can still explain."""
