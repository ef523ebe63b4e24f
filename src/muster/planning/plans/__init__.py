"""The planners: one file each, a `Question` whose ``work`` returns the answer worked as one would by hand.

As a library:

    from muster.planning.plans.spares import Spares
    from muster.planning.question import derive

    derive(Spares(nodes=128)).results[0].value
"""
