"""What each option of sbatch becomes on Kubernetes: every one is in exactly one of these tables (a test checks it).

Source: sbatch(1) of Slurm 26.05, Kubernetes API 1.37, jobset api/jobset/v1alpha2, Kueue v1beta2.
"""

from __future__ import annotations

DONE = frozenset((
    "account", "array", "chdir", "comment", "constraint", "container-env", "container-image", "container-workdir",
    "cpus-per-gpu", "cpus-per-task", "distribution", "exclude", "exclusive", "export", "gpus", "gpus-per-node",
    "gpus-per-task", "gres", "hold", "job-name", "mem", "mem-per-cpu", "mem-per-gpu", "mincpus", "no-requeue",
    "nodelist", "nodes", "ntasks", "ntasks-per-gpu", "ntasks-per-node", "overcommit", "output", "error", "partition",
    "requeue", "segment", "signal", "switches", "time", "tmp", "umask", "container-mounts", "dependency", "qos",
    "open-mode", "gpu-bind",
))  # fmt: skip
"""Read, and made into something; what cannot be made is told by whatever reads it."""

OF_THE_COMMAND = frozenset((
    "help", "usage", "version", "quiet", "verbose", "parsable", "test-only", "wait", "wrap", "ignore-pbs", "batch",
    "bell",
))  # fmt: skip
"""They steer the command sbatch and not the job."""

LOST: dict[str, str] = {
    "begin": "no start time can be given: apply it then, or put the Job into a CronJob",
    "contiguous": "nodes have no order; a topology request keeps pods near each other",
    "core-spec": "cores for the system are set aside on the node (kubelet --reserved-cpus)",
    "thread-spec": "threads for the system are set aside on the node (kubelet --reserved-cpus)",
    "prefer": "preferred features: write preferredDuringScheduling node affinity by hand",
    "reservation": "there are no reservations in time; taint the nodes and let the pods tolerate the taint",
    "spread-job": "write topologySpreadConstraints over kubernetes.io/hostname by hand",
    "time-min": "the time limit is not shortened to fit a gap",
    "licenses": "licenses are not counted; with Kueue make them a resource of the ClusterQueue",
    "priority": "there are no numbers of single jobs; name a PriorityClass by --priority-class",
    "nice": "there are no numbers of single jobs; name a PriorityClass by --priority-class",
    "deadline": "nothing removes a job that can no longer end in time",
    "threads-per-core": "CPUs are threads, and the kubelet's CPU manager picks them",
    "hint": "CPUs are threads, and the kubelet's CPU manager picks them",
    "clusters": "apply it to that cluster (kubectl --context), or use MultiKueue",
    "acctg-freq": "usage is sampled by the cluster's metrics",
    "bb": "there is no burst buffer; mount a volume (--volume)",
    "bbf": "there is no burst buffer; mount a volume (--volume)",
    "consolidate-segments": "segments may spread over blocks as the scheduler likes",
    "container": "an OCI bundle is no image; name one by --image",
    "container-id": "the runtime names containers itself",
    "cpu-freq": "frequencies are the node's affair",
    "delay-boot": "nodes are not booted for a job; that is the autoscaler's",
    "export-file": "name the variables by --export=NAME=VALUE",
    "extra": "has no meaning to Kubernetes; put it into an annotation",
    "get-user-env": "there is no login shell; put the variables into the script or the image",
    "gid": "write securityContext.runAsGroup by hand",
    "uid": "write securityContext.runAsUser by hand",
    "gpu-freq": "clocks are the node's affair",
    "gres-flags": "binding of CPUs to GPUs is the kubelet's topology manager's",
    "immediate": "a Job waits until there is room",
    "input": "pods have no input; redirect it in the script",
    "kill-on-invalid-dep": "dependencies are not kept by the cluster",
    "mail-type": "nothing is mailed; alert on kube_job_status_failed of kube-state-metrics",
    "mail-user": "nothing is mailed; alert on kube_job_status_failed of kube-state-metrics",
    "mcs-label": "use a namespace for that",
    "mem-bind": "NUMA is the kubelet's memory manager's",
    "network": "name the network's resource (such as rdma/ib) in the pod by hand",
    "no-kill": "a pod whose node fails is lost, and the job starts again or fails",
    "power": "has no counterpart",
    "profile": "profiles are not taken; use the cluster's metrics",
    "propagate": "limits are those of the container runtime",
    "reboot": "nodes are not booted for a job",
    "resv-ports": "pods have addresses of their own, so that ports are not shared out",
    "stepmgr": "there are no steps",
    "tree-width": "nothing is fanned out",
    "use-min-nodes": "the number of pods is what is asked for",
    "wait-all-nodes": "a gang is admitted whole, but its pods start one by one; the script may wait for the others",
    "wckey": "put it into a label",
    "resources": "is not read; ask by --gpus-per-node and the like",
    "resource-layers": "is not read; ask by --gpus-per-node and the like",
    "container-name": "containers are made anew for each pod",
    "container-save": "containers are not saved; build an image",
    "container-mount-home": "mount the home folder as a volume (--volume)",
    "no-container-mount-home": "no home folder is mounted, unless --volume says so",
    "container-remap-root": "write securityContext.runAsUser: 0 by hand",
    "no-container-remap-root": "write securityContext.runAsUser by hand",
    "container-writable": "containers may write, and what they write is gone with them",
    "container-readonly": "write securityContext.readOnlyRootFilesystem by hand",
    "container-entrypoint": "the image's entry point is not run: the script is",
    "no-container-entrypoint": "the image's entry point is not run: the script is",
    "container-entrypoint-log": "the image's entry point is not run: the script is",
}
"""No counterpart, and what to do instead."""

SRUN_ALONE = frozenset((
    "label", "unbuffered", "pty", "exclusive", "exact", "overlap", "verbose", "quiet", "overcommit", "disable-status",
    "no-kill", "preserve-env", "multi-prog", "wait-all-nodes", "oversubscribe", "whole",
    "container-mount-home", "no-container-mount-home", "container-remap-root", "no-container-remap-root",
    "container-writable", "container-readonly", "container-entrypoint", "no-container-entrypoint",
))  # fmt: skip
"""Options of srun that take no value."""
SRUN_SHORT = {
    "n": "ntasks", "N": "nodes", "c": "cpus-per-task", "l": "label", "u": "unbuffered", "K": "kill-on-bad-exit",
    "m": "distribution", "o": "output", "e": "error", "i": "input", "w": "nodelist", "x": "exclude", "G": "gpus",
    "v": "verbose", "Q": "quiet", "X": "disable-status", "O": "overcommit", "D": "chdir", "J": "job-name", "t": "time",
    "p": "partition", "A": "account", "r": "relative", "T": "threads", "W": "wait", "s": "oversubscribe",
    "k": "no-kill", "E": "preserve-env", "C": "constraint", "q": "qos", "B": "extra-node-info", "Z": "no-allocate",
}  # fmt: skip
SRUN_MAYBE = frozenset(("kill-on-bad-exit", "exclusive", "interactive", "mpi-combine"))
"""Options of srun whose value may be left out; it is given by ``=`` only."""
SRUN_SILENT = frozenset((
    "label", "unbuffered", "verbose", "quiet", "exact", "overlap", "disable-status", "cpus-per-task", "job-name",
    "time", "partition", "account", "gpus-per-node", "gres", "mem", "exclusive", "wait", "container-workdir",
    "kill-on-bad-exit", "container-image", "container-mounts", "cpus-per-gpu", "qos",
))  # fmt: skip
"""Of srun: what the job has already, or what changes nothing that ranks see; the images are read elsewhere."""
