"""The method: closeness losses, distillation, mining, and the one training loop of the package."""
