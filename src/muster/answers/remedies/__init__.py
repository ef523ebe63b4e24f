"""What may be changed so that a waiting gang starts: each file proposes one kind of change, the cheapest first.

They only propose: whether the gang then starts, and at whose cost, `muster.answers.trials` tries with the engine.
"""
