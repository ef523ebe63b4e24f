"""The keys that Slurm's configuration files know, from 22.05 to 26.05, and those that were replaced.

Sources: slurm.conf(5), gres.conf(5), cgroup.conf(5) and topology.conf(5) of Slurm 22.05.8, and of newer versions as far
as they differ. A key more in these tables does no harm: they are there to tell a typo from a key.
"""

from __future__ import annotations

from muster.slurm.conf_lines import Keys

SLURM = Keys(
    "slurm.conf",
    """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageLoc AccountingStorageParameters AccountingStoragePass AccountingStoragePort AccountingStorageTRES
    AccountingStorageType AccountingStorageUser AccountingStoreFlags AccountingStoreJobComment AcctGatherEnergyType
    AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherInfinibandType AcctGatherNodeFreq
    AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr
    BackupController BatchStartTimeout BcastExclude BcastParameters BurstBufferParameters BurstBufferType
    CertgenParameters CertgenType CertmgrParameters CertmgrType CliFilterParameters CliFilterPlugins ClusterName
    CommunicationParameters CompleteWait ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef CpuFreqGovernors
    CredType CryptoType DataParserParameters DebugFlags DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode
    DependencyParameters DisableRootJobs EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld
    EpilogTimeout ExtSensorsFreq ExtSensorsType FairShareDampeningFactor FastSchedule FederationParameters FirstJobId
    GetEnvTimeout GpuFreqDef GresTypes GroupUpdateForce GroupUpdateTime HashPlugin HealthCheckInterval
    HealthCheckNodeState HealthCheckProgram HttpParserType InactiveLimit InteractiveStepOptions JobAcctGatherFrequency
    JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript
    JobCompPort JobCompType JobCompUser JobContainerType JobCredentialPrivateKey JobCredentialPublicCertificate
    JobFileAppend JobRequeue JobSubmitPlugins KeepAliveTime KillOnBadExit KillWait LaunchParameters LaunchType
    Licenses LogTimeFormat MailDomain MailProg MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId
    MaxMemPerCPU MaxMemPerNode MaxNodeCount MaxStepCount MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout
    MetricsType MinJobAge MpiDefault MpiParams NamespaceType NodeFeaturesPlugins OverTimeLimit PluginDir
    PlugStackConfig PowerParameters PowerPlugin PreemptExemptTime PreemptMode PreemptParameters PreemptType
    PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall PriorityFlags
    PriorityMaxAge PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType
    PriorityUsageResetPeriod PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize
    PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout
    PrologFlags PrologSlurmctld PrologTimeout PropagatePrioProcess PropagateResourceLimits
    PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram
    ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun ResvProlog ReturnToService RoutePlugin
    SallocDefaultCommand SbcastParameters SchedulerAuth SchedulerParameters SchedulerTimeSlice SchedulerType
    ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldLogFile
    SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack SlurmctldPort SlurmctldPrimaryOffProg
    SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters
    SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser SlurmSchedLogFile
    SlurmSchedLogLevel SlurmUser SrunEpilog SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes
    SuspendExcParts SuspendExcStates SuspendProgram SuspendRate SuspendTime SuspendTimeout SwitchParameters
    SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TCPTimeout TLSParameters TLSType TmpFS TopologyParam
    TopologyPlugin TrackWCKey TreeWidth UnkillableStepProgram UnkillableStepTimeout UrlParserType UsePAM VSizeFactor
    WaitTime X11Parameters
    """,
)
NODE = Keys(
    "NodeName lines",
    """
    NodeName BcastAddr Boards CoreSpecCount CoresPerSocket CpuBind CPUs CpuSpecList Feature Features Gres GresConf
    MemSpecLimit NodeAddr NodeHostname Parameters Port Procs RealMemory Reason RestrictedCoresPerGPU Sockets
    SocketsPerBoard State ThreadsPerCore TmpDisk Topology TRESWeights Weight
    """,
)
PARTITION = Keys(
    "PartitionName lines",
    """
    PartitionName AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCpuPerGPU
    DefMemPerCPU DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveTopo ExclusiveUser GraceTime
    Hidden JobDefaults LLN MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes
    OverSubscribe OverTimeLimit PowerDownOnIdle PreemptMode Priority PriorityJobFactor PriorityTier QOS ReqResv
    ResumeTimeout RootOnly SelectTypeParameters Shared State SuspendTime SuspendTimeout Topology TRESBillingWeights
    """,
)
NODE_SET = Keys("NodeSet lines", "NodeSet Feature Nodes")
DOWN_NODES = Keys("DownNodes lines", "DownNodes Reason State")
FRONTEND = Keys(
    "FrontendName lines", "FrontendName AllowGroups AllowUsers DenyGroups DenyUsers FrontendAddr Port Reason State"
)
GRES = Keys("gres.conf", "NodeName AutoDetect Count Cores File Files Flags Links MultipleFiles Name Type")
CGROUP = Keys(
    "cgroup.conf",
    """
    AllowedKmemSpace AllowedRAMSpace AllowedSwapSpace CgroupAutomount CgroupMountpoint CgroupPlugin CgroupSlice
    ConstrainCores ConstrainDevices ConstrainKmemSpace ConstrainRAMSpace ConstrainSwapSpace EnableControllers
    EnableExtraControllers IgnoreSystemd IgnoreSystemdOnFailure MaxKmemPercent MaxRAMPercent MaxSwapPercent
    MemorySwappiness MinKmemSpace MinRAMSpace SignalChildrenProcesses SystemdTimeout TaskAffinity
    """,
)
TOPOLOGY = Keys("topology.conf", "SwitchName Switches Nodes LinkSpeed BlockName BlockSizes")


GONE = {
    "AccountingStorageLoc": "leave it out: slurmdbd knows its database",
    "AccountingStoreJobComment": "AccountingStoreFlags=job_comment",
    "AcctGatherInfinibandType": "AcctGatherInterconnectType",
    "BackupAddr": "a second SlurmctldHost=NAME(ADDRESS)",
    "BackupController": "a second SlurmctldHost=NAME",
    "ControlAddr": "SlurmctldHost=NAME(ADDRESS)",
    "ControlMachine": "SlurmctldHost=NAME",
    "CoreSpecPlugin": "leave it out",
    "CryptoType": "CredType",
    "ExtSensorsFreq": "leave it out",
    "ExtSensorsType": "leave it out",
    "FastSchedule": "SlurmdParameters=config_overrides, where hardware differs from this file",
    "GetEnvTimeout": "leave it out",
    "KeepAliveTime": "CommunicationParameters=keepalivetime=...",
    "LaunchType": "leave it out",
    "PowerParameters": "leave it out",
    "PowerPlugin": "leave it out",
    "RoutePlugin": "TopologyParam=RouteTree in the place of route/topology",
    "SchedulerAuth": "leave it out",
}
"""Keys of slurm.conf that older Slurms read and newer ones do not, and what to write instead."""

CGROUP_GONE = {
    "CgroupAutomount": "leave it out",
    "AllowedKmemSpace": "leave it out",
    "ConstrainKmemSpace": "leave it out",
    "MaxKmemPercent": "leave it out",
    "MinKmemSpace": "leave it out",
    "TaskAffinity": "TaskPlugin=task/affinity in slurm.conf",
}
"""The same of cgroup.conf."""

SCHEDULER_OPTIONS = Keys(
    "SchedulerParameters",
    """
    allow_zero_lic assoc_limit_stop batch_sched_delay bb_array_stage_cnt bf_allow_magnetic_slot bf_busy_nodes
    bf_continue bf_hetjob_immediate bf_hetjob_prio bf_interval bf_job_part_count_reserve bf_licenses
    bf_max_job_array_resv bf_max_job_assoc bf_max_job_part bf_max_job_start bf_max_job_test bf_max_job_user
    bf_max_job_user_part bf_max_time bf_min_age_reserve bf_min_prio_reserve bf_node_space_size
    bf_one_resv_per_job bf_resolution bf_running_job_reserve bf_topopt_enable bf_topopt_iterations bf_window
    bf_window_linear bf_yield_interval bf_yield_sleep build_queue_timeout correspond_after_task_cnt
    default_queue_depth defer defer_batch delay_boot disable_hetjob_steps disable_job_shrink enable_hetjob_steps
    enable_job_state_cache enable_user_top extra_constraints ignore_constraint_validation ignore_numa
    ignore_prefer_validation max_array_tasks max_rpc_cnt max_sched_time max_script_size max_submit_line_size
    max_switch_wait no_backup_scheduling no_env_cache nohold_on_prolog_fail pack_serial_at_end
    partition_job_depth permit_job_expansion preempt_reorder_count preempt_send_user_signal preempt_strict_order
    preempt_youngest_first reduce_completing_frag requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes
    sched_interval sched_max_job_start sched_min_interval spec_cores_first step_retry_count step_retry_time
    time_min_as_soft_limit whole_hetjob
    """,
).names
"""Options of SchedulerParameters, with those of newer versions."""
