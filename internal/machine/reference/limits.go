package reference

const second = int64(1_000_000_000)

// The limits, a second time. A test of the machine compares them.
const (
	MaxName      = 512 // bytes
	MaxLabel     = 128 // bytes
	MaxTrace     = 64  // bytes
	MinTTL       = 1 * second
	MaxTTL       = 24 * 60 * 60 * second
	MaxLockDelay = 60 * second
	MinMaxHold   = second / 1000
	MaxMaxHold   = 24 * 60 * 60 * second
	MinSilence   = 5 * second

	MaxSessions     = 20_000
	MaxAllSessions  = 1_048_576
	MaxStandalone   = 16_384
	MaxReleased     = 5_000
	MaxSet          = 128
	MaxWaiters      = 16_384
	MaxQueued       = 16_384
	MaxShares       = 16_384
	MaxGrants       = 1_024
	MaxInFlight     = 32_768
	MaxIncarnations = 1024

	MaxTouched     = 32_768
	MaxSearched    = 16_384
	MaxAllSearched = 32_768

	MaxOutcomeBytes    = 16 << 20
	MaxAllOutcomeBytes = 256 << 20
	MinOutcomeBytes    = 8 << 10

	MaxMembers      = 128
	MaxGroups       = 1_000
	MaxUnregistered = 16
	MaxForgettable  = 64
	FirstBlock      = 16
	MaxBlock        = 4_096

	MaxClients        = 32_768
	MaxClientSessions = 1_024
	MaxRenewed        = 4_096
	MaxClientTTL      = 600 * second
	MaxRegistering    = 60 * second

	MaxChecks = 256

	ReservedSessions = 65_536
	ReservedKeys     = 65_536
	ReservedKeyBytes = 64 << 20

	MaxRuns      = 64 // retained keys of a job, and retained runs with every
	MaxJobs      = 16_384
	MaxJobBytes  = 128 << 20
	MaxRunDetail = 128 // bytes
	MinEvery     = second / 1000
	MaxEvery     = 366 * 24 * 60 * 60 * second
	MinKeep      = second / 1000
	MaxKeep      = 3653 * 24 * 60 * 60 * second

	MaxShards         = 4_096 // of one set
	MaxCapacity       = 1_024
	MaxSettle         = 24 * 60 * 60 * second
	MaxShardSets      = 1_024
	MaxAllShards      = 65_536
	MaxShardWorkers   = 1_024 // of one set
	MaxReleasedShards = 1_024 // by one command

	MaxAllShardWorkers   = 16_384
	ReservedShardWorkers = 1_024

	MaxMoves = 16 // of one set at a time

	ReservedShardSets = 64
	ReservedShards    = 8_192

	ReservedJobs     = 1_024
	ReservedJobBytes = 16 << 20

	MaxSessionChecks = 16
	MaxCandidate     = 64 << 10 // bytes
	MaxPermits       = 1<<31 - 1
	MaxSlots         = 128
	MaxFormer        = 1_024
	MaxFormerBytes   = 1 << 20

	MaxValue      = 512 << 10 // bytes
	MaxOps        = 128
	MaxPrefixKeys = 16_384
	MaxPrefixed   = 32_768 // of one entry
	MaxKeys       = 1_048_576
	MaxKeyBytes   = 1 << 30
)
