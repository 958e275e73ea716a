package machine

import (
	"slices"
	"strings"

	"github.com/conclave-go/conclave/internal/wire"
)

const second = int64(1_000_000_000)

// The limits are part of the state machine: members with different limits would
// diverge. Changing one needs a new wire.BatchVersion.
const (
	MaxName      = 512 // bytes, of a lock's or session's name
	MaxLabel     = 128 // bytes, of a handle's label
	MaxTrace     = 64  // bytes, of a release; a W3C traceparent has 55
	MinTTL       = 1 * second
	MaxTTL       = 24 * 60 * 60 * second
	MaxLockDelay = 60 * second
	MinMaxHold   = second / 1000 // after which a hold ends
	MaxMaxHold   = 24 * 60 * 60 * second
	MinSilence   = 5 * second // of a registered process, before it can be declared dead

	MaxIncarnations = 1024      // of members, registered at once
	MaxSessions     = 20_000    // of one member, unbound ones included: one entry may end all. From level 6 on standalone ones have as much
	MaxAllSessions  = 1_048_576 // of the group, unbound ones included
	MaxStandalone   = 16_384    // standalone sessions with a TTL: the first entry of a term renews all
	MaxPlaces       = 1_048_576 // holds, permits, locked keys and queue places of one session
	MaxWaiters      = 16_384    // of one lock
	MaxShares       = 16_384    // of one lock: held shared, or awaited so
	MaxGrants       = 1_024     // requests in queues that one entry grants shares, besides the first of each
	MaxQueued       = 16_384    // queue places of one process: one entry may remove all
	MaxHolds        = 1<<31 - 1 // of one owner, whatever its own limit
	MaxReleased     = 5_000     // things that one entry releases because of ended sessions and lock-delays
	MaxInFlight     = 32_768    // sequence numbers above an incarnation's floor

	MaxSearched    = 16_384 // waiters and shares that one search for a deadlock looks at; each session that it reaches counts for 8
	MaxAllSearched = 32_768 // that those for all clients look at in one entry; those for all members as many

	MaxTouched = 32_768 // names of the sets that the commands of all clients take or release in one entry; those of all members as many

	MaxOutcomeBytes    = 16 << 20  // of the outcomes that one process has not acknowledged
	MaxAllOutcomeBytes = 256 << 20 // of those of all clients; of all members as much
	MinOutcomeBytes    = 8 << 10   // that each process may keep, however much others do

	MaxClients        = 32_768       // registered at once, and those that ended and have a tombstone: from level 6 on each, before together
	MaxClientSessions = 1_024        // of one client, unbound ones included
	MaxRenewed        = 4_096        // clients that one RenewClients renews
	MaxClientTTL      = 600 * second // of a client's registration: one that went without a word takes a place for as long
	MaxRegistering    = 60 * second  // for which a RegisterClient may be valid, and a key unusable after a registration

	MaxChecks        = 256           // of one member's program; from level 6 on its clients have as many
	MaxSessionChecks = 16            // that one session depends on
	MaxCandidate     = 64 << 10      // bytes, of a value in an election
	MaxCandidates    = 256 << 20     // of all of them
	MaxPermits       = 1<<31 - 1     // a semaphore's largest limit
	MaxResized       = 65_536        // semaphores whose limit was set by Resize
	MaxSlots         = wire.MaxSlots // permits of one acquisition that get numbers

	MinEvery    = second / 1000 // between the starts of two runs of a job
	MaxEvery    = 366 * 24 * 60 * 60 * second
	MinKeep     = second / 1000 // after the end of a run
	MaxKeep     = 3653 * 24 * 60 * 60 * second
	MaxRuns     = 64 // of one job that are retained: those of keys, and those of periods
	MaxJobs     = 16_384
	MaxJobBytes = 128 << 20 // what all retain; see jobBytes

	MaxShards       = 4_096  // of one set
	MaxShardSets    = 1_024  // of shards
	MaxAllShards    = 65_536 // of all sets
	MaxShardWorkers = 1_024  // of one set, those that have ended and are waited for included
	MaxCapacity     = 1_024  // of a worker

	MaxAllShardWorkers = 16_384 // of all sets
	MaxSettle          = 24 * 60 * 60 * second
	MaxMoves           = 16    // shards of one set that are to move at a time
	MaxReleasedShards  = 1_024 // that one command releases

	MaxPrefixed = 32_768 // keys that the prefixes of the Writes of all clients may have found in one entry when another one is applied; of all members as many

	MaxValue      = 512 << 10 // bytes, of a key's value
	MaxOps        = 128       // operations of one Write
	MaxPrefixKeys = 16_384    // keys that the prefixes of one Write delete
	MaxKeys       = 1_048_576
	MaxKeyBytes   = 1 << 30 // of all keys and values

	// What members have beyond the limits that they share with clients, from level 6 on: clients
	// can use up theirs, and no program's own member is locked out by that.
	ReservedSessions   = 65_536
	ReservedCandidates = 64 << 20 // bytes
	ReservedResized    = 4_096
	ReservedKeys       = 65_536
	ReservedKeyBytes   = 64 << 20
	ReservedJobs       = 1_024
	ReservedJobBytes   = 16 << 20
	ReservedShardSets  = 64
	ReservedShards     = 8_192

	ReservedShardWorkers = 1_024

	maxFences = 1<<48 - 1 // the counter's bits in a fence
	maxEpoch  = 1<<16 - 1
)

// checkName returns nil or the refusal of a lock's name.
func (m *Machine) checkName(name string) *wire.Reply {
	if name == "" {
		return m.refuse(wire.Code_INVALID, "the name is empty: want 1 to 512 bytes")
	}
	return m.checkOptionalName(name)
}

// checkOptionalName is checkName for names that may be empty. The decoder of commands has
// refused invalid UTF-8.
func (m *Machine) checkOptionalName(name string) *wire.Reply {
	switch {
	case len(name) > MaxName:
		return m.refuse(wire.Code_TOO_LARGE, "the name is too long: want 1 to 512 bytes")
	case strings.IndexByte(name, 0) >= 0:
		return m.refuse(wire.Code_INVALID, "the name contains a NUL byte")
	}
	return nil
}

// checkOpening returns nil or the refusal of a session's settings.
func (m *Machine) checkOpening(c *wire.OpenSession) *wire.Reply {
	if r := m.checkOptionalName(c.Name); r != nil {
		return r
	}
	if c.Ttl != 0 {
		if r := m.checkTTL(c.Ttl); r != nil {
			return r
		}
	}
	if r := m.checkLockDelay(c.LockDelay); r != nil {
		return r
	}
	if c.Behavior != wire.Behavior_RELEASE && c.Behavior != wire.Behavior_DELETE {
		return m.refuse(wire.Code_INVALID, "unknown behavior")
	}
	if len(c.Checks) > MaxSessionChecks {
		return m.refuse(wire.Code_TOO_LARGE, "too many checks: at most 16")
	}
	for i, name := range c.Checks {
		if r := m.checkName(name); r != nil {
			return r
		}
		if slices.Contains(c.Checks[:i], name) {
			return m.refuse(wire.Code_INVALID, "a check is listed twice")
		}
	}
	return nil
}

func (m *Machine) checkTTL(ttl int64) *wire.Reply {
	if ttl < MinTTL || ttl > MaxTTL {
		return m.refuse(wire.Code_INVALID, "the TTL is out of range: want 1 s to 24 h")
	}
	return nil
}

func (m *Machine) checkLockDelay(delay int64) *wire.Reply {
	if delay < 0 || delay > MaxLockDelay {
		return m.refuse(wire.Code_INVALID, "the lock-delay is out of range: want 0 to 60 s")
	}
	return nil
}

// namesTouched is the names of the sets that the commands of the present entry have taken or released. A command of some bytes
// can concern MaxSet of them.
type namesTouched struct {
	most             int // MaxTouched; less in tests
	members, clients int
}

// mayTouch refuses a command for as many names, if the entry has done enough for sets. The first one is never refused, and
// the second half is for releases: their processes try again.
func (x setting) mayTouch(names int, release bool) *wire.Reply {
	sum, most := &x.touched.members, x.touched.most
	if x.forClient {
		sum = &x.touched.clients
	}
	if !release {
		most /= 2
	}
	if *sum > 0 && *sum+names > most {
		return x.refuse(wire.Code_BUSY, "too many names of sets at once; try again")
	}
	*sum += names
	return nil
}
