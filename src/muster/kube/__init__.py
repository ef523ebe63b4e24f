"""What objects of Kubernetes mean to the engine: nodes, pods, gangs and queues as the model has them. No I/O."""
