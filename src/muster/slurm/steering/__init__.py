"""Steering a Slurm that goes on deciding by itself: from a plan to the least writes, and back to what was.

A job is steered by three fields, which slurmctld honours and which can be put back to the letter: ``Nice`` (who goes
first), ``ExcNodeList`` (all nodes but those that the plan has for it) and ``ReservationName``. What was and what is
now stand in the job's AdminComment, written by the same request. ``ReqNodeList`` is never written: of a job that
started meanwhile slurmctld takes it as the wish to give back the other nodes.
"""
