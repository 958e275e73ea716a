// Package wire holds the messages of wire.proto and net.proto, their codec, and the identities in them.
package wire

import (
	"encoding/hex"
	"fmt"
	"strings"
)

//go:generate go -C ../../tools run ./protogen ../internal/wire github.com/conclave-go/conclave/internal/wire/wire.proto
//go:generate go -C ../../tools run ./protogen ../internal/wire github.com/conclave-go/conclave/internal/wire/net.proto

// Versions of the formats. Data with a larger version is refused.
const (
	BatchVersion      = 1
	StateVersion      = 1
	IdentityVersion   = 3 // with an accepted proposal that states a feature level, which builds before would not heed
	IdentityBase      = 2 // otherwise
	SnapshotVersion   = 1
	DivergenceVersion = 1
	GossipVersion     = 1
	BackupVersion     = 2 // with a further group, which builds before do not know
	BackupBase        = 1 // otherwise
	ProtocolMin       = 2 // 1: builds before members could join, which apply the same commands differently
	ProtocolMax       = 2
)

// The feature levels. BatchVersion is the lowest that a batch can have.
const (
	LevelLinger     = 2  // Lock with lingering, and Refill
	LevelLabel      = 3  // Lock with a label; the times since which locks are held and waited for
	LevelTrace      = 4  // Unlock and Release with a trace, and grants with that of their cause
	LevelClient     = 4  // clients: processes that are no members
	LevelStandalone = 5  // sessions that are bound to no process
	LevelBounds     = 6  // retained outcomes bounded by bytes; further limits that one user cannot use up for another
	LevelProcess    = 7  // the built-in check process: ReportProcess, and CrashEvidence between members
	LevelShared     = 7  // Lock with shared, Unlock with share, and Downgrade
	LevelSlots      = 7  // permits with numbers
	LevelDeadlock   = 7  // Lock with refuse_deadlock
	LevelMaxHold    = 7  // holds that end in time: Lock and Acquire with max_hold, and Extend
	LevelSets       = 7  // several locks as a whole: LockSet and UnlockSet
	LevelJobs       = 8  // jobs: RunJob and EndRun
	LevelShards     = 9  // sets of shards: JoinShards, LeaveShards, ReleaseShards and ResizeShards
	LevelDeleteJob  = 10 // DeleteJob
	LevelReserve    = 10 // names are not reserved for a set with refuse_deadlock where that would close a cycle; searches for cycles see each reservation
	LevelGroups     = 11 // several groups: CreateGroup, DropGroup, FollowMembers and SealGroup
	LevelTogether   = 12 // sessions that one command or the passing of time ends are ended before anything of theirs is granted
	LevelClaim      = 12 // Acquire claims more permits than a Resize has left
	LevelPrefixes   = 13 // the keys that the prefixes of Writes find are bounded for an entry
	LevelShorter    = 13 // Proclaim counts what the value replaces
	LevelApart      = 13 // searches before the names of a client's set are reserved count apart
	FeatureLevel    = LevelApart
)

// ID is a 128-bit identity: of a cluster, an incarnation or a session.
type ID [16]byte

// IDFrom reads an ID; ok is false unless b has 16 bytes.
func IDFrom(b []byte) (id ID, ok bool) {
	if len(b) != len(id) {
		return ID{}, false
	}
	return ID(b), true
}

// IsZero reports whether the identity is absent.
func (id ID) IsZero() bool { return id == ID{} }

// String prints the ID as a UUID is printed.
func (id ID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// MarshalText returns what String prints.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText returns, and nothing else.
func (id *ID) UnmarshalText(text []byte) error {
	var read ID
	digits := strings.ReplaceAll(string(text), "-", "")
	if n, err := hex.Decode(read[:], []byte(digits[:min(len(digits), 2*len(read))])); err != nil || n != len(read) || read.String() != string(text) {
		return fmt.Errorf("wire: invalid ID: want the form %s, got %d bytes of another", ID{}, len(text))
	}
	*id = read
	return nil
}

// MemberID is a member's identity, as logs and errors print it.
type MemberID uint64

// String prints the ID as 16 hexadecimal digits.
func (id MemberID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MemberIDs returns identities as logs and errors print them.
func MemberIDs(ids []uint64) (list []MemberID) {
	for _, id := range ids {
		list = append(list, MemberID(id))
	}
	return list
}

// Ticket is the request ID of one call, which makes retries idempotent.
type Ticket struct {
	Incarnation ID
	Seq         uint64
}

// Change is one change of the durable state. A nil Value deletes the key. Created says
// that the key did not exist before; without it, it may have existed or not.
type Change struct {
	Key, Value []byte
	Created    bool
}
