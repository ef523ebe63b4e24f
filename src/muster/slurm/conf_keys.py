"""The keys that Slurm's configuration files know, and since or until when where that is not 22.05 to today.

Sources: slurm.conf(5), gres.conf(5), cgroup.conf(5) and topology.conf(5) of Slurm 22.05.8; what came and went after it:
SchedMD/slurm RELEASE_NOTES of 23.02, 23.11, 24.05, 24.11 and 25.05, CHANGELOG/slurm-25.11.md and slurm-26.05.md.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Gone(NamedTuple):
    """A key that is not read any more: since which Slurm, and what to do."""

    since: str
    instead: str


GONE = {
    "AccountingStorageLoc": Gone("24.05", "leave it out: slurmdbd knows its database"),
    "AccountingStoreJobComment": Gone("21.08", "AccountingStoreFlags=job_comment"),
    "AcctGatherInfinibandType": Gone("17.11", "AcctGatherInterconnectType"),
    "BackupAddr": Gone("23.11", "a second SlurmctldHost=NAME(ADDRESS)"),
    "BackupController": Gone("23.11", "a second SlurmctldHost=NAME"),
    "ControlAddr": Gone("23.11", "SlurmctldHost=NAME(ADDRESS)"),
    "ControlMachine": Gone("23.11", "SlurmctldHost=NAME"),
    "CoreSpecPlugin": Gone("23.11", "leave it out"),
    "CryptoType": Gone("19.05", "CredType"),
    "ExtSensorsFreq": Gone("24.05", "leave it out"),
    "ExtSensorsType": Gone("24.05", "leave it out"),
    "FastSchedule": Gone("20.02", "SlurmdParameters=config_overrides, where hardware differs from this file"),
    "GetEnvTimeout": Gone("25.05", "leave it out"),
    "KeepAliveTime": Gone("22.05", "CommunicationParameters=keepalivetime=..."),
    "LaunchType": Gone("23.11", "leave it out"),
    "PowerParameters": Gone("24.05", "leave it out"),
    "PowerPlugin": Gone("24.05", "leave it out"),
    "RoutePlugin": Gone("23.11", "TopologyParam=RouteTree in the place of route/topology"),
    "SchedulerAuth": Gone("17.02", "leave it out"),
}
"""Keys of slurm.conf that newer Slurms do not read."""

CGROUP_GONE = {
    "CgroupAutomount": Gone("24.05", "leave it out"),
    "AllowedKmemSpace": Gone("24.05", "leave it out"),
    "ConstrainKmemSpace": Gone("24.05", "leave it out"),
    "MaxKmemPercent": Gone("24.05", "leave it out"),
    "MinKmemSpace": Gone("24.05", "leave it out"),
    "TaskAffinity": Gone("22.05", "TaskPlugin=task/affinity in slurm.conf"),
}

SINCE = {
    "CertgenType": "25.05", "CertgenParameters": "25.05", "CertmgrType": "25.05", "CertmgrParameters": "25.05",
    "DataParserParameters": "24.05", "EpilogTimeout": "24.11", "HashPlugin": "23.02", "HttpParserType": "25.05",
    "MaxBatchRequeue": "25.05", "MetricsType": "25.11", "NamespaceType": "25.11", "PreemptParameters": "25.05",
    "PrologTimeout": "24.11", "SuspendExcStates": "23.02", "TLSParameters": "25.05", "TLSType": "25.05",
    "UrlParserType": "25.05", "GresConf": "25.05", "RestrictedCoresPerGPU": "24.05", "Topology": "25.05",
    "ExclusiveTopo": "24.05", "MaxCPUsPerSocket": "23.02", "BlockName": "23.11", "BlockSizes": "24.05",
    "CgroupSlice": "25.05", "SignalChildrenProcesses": "22.05", "EnableControllers": "23.11",
    "SystemdTimeout": "23.11", "EnableExtraControllers": "24.11",
}  # fmt: skip
"""Keys that an older Slurm does not know, with the first that does."""
