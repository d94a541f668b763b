"""From a spec to a running job: the AppDef, our torchx schedulers, the node process."""
