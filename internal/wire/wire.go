// Package wire holds the types that several layers share: the messages of
// wire.proto and net.proto, and plain values that pass between the machine and the cluster.
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
	BackupVersion     = 1
	ProtocolMin       = 2 // 1: builds before members could join, which apply the same commands differently
	ProtocolMax       = 2
)

// The feature levels. BatchVersion is the lowest that a batch can have.
const (
	LevelLinger     = 2 // Lock with lingering, and Refill
	LevelLabel      = 3 // Lock with a label; the times since which locks are held and waited for
	LevelTrace      = 4 // Unlock and Release with a trace, and grants with that of their cause
	LevelClient     = 4 // clients: processes that are no members
	LevelStandalone = 5 // sessions that are bound to no process
	LevelBounds     = 6 // retained outcomes bounded by bytes; further limits that one user cannot use up for another
	FeatureLevel    = LevelBounds
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

// Outcome is the result of a command, addressed to its ticket and the member that
// submitted it. If More is set, a second outcome for the ticket follows.
type Outcome struct {
	Ticket Ticket
	Member uint64
	Reply  *Reply
	More   bool
}

// Ended notifies an incarnation that a session bound to it has ended or, with
// Unbound, that the session lives on and is no longer bound to it. A process must learn
// the end of a session before it learns that another owner was granted what the session
// held, so an Ended has a place among the outcomes of its entry.
type Ended struct {
	Incarnation ID
	Session     ID
	Unbound     bool
	Outcomes    int // of the entry that come before it

	// For operators; zero with Unbound.
	Member uint64 // of the session's last process
	Name   string // of the session
	Cause  Cause
	Held   int // locks, elections, acquisitions of permits, and keys
}

// Cause is why a session has ended.
type Cause uint8

// The causes. All but Closed invalidate the session: its lock-delay follows.
const (
	Closed        Cause = iota // gracefully: by its process, or by any if it had none
	Expired                    // neither it nor its process was renewed in time
	CheckFailed                // one of its checks became critical, or was deregistered
	Forced                     // closed by force
	Superseded                 // its member registered another process
	MemberRemoved              // from the group
)

// Recall asks the owner of a lingering lock, or the first in line to become it, to admit no
// newcomers to its tenure: another owner waits behind it, or has been refused because of
// it. It is addressed by session and handle, and by the incarnation that the session is bound
// to; zero: it is unbound.
type Recall struct {
	Session     ID
	Incarnation ID
	Lock        string
	Handle      uint64
}

// MemberLiveness is what the group holds of the last registered process of a member.
type MemberLiveness struct {
	Member, Boot uint64
	Silent       bool // the failure detector has declared it dead
}

// MemberRecord is what the group holds of a member that was not removed.
type MemberRecord struct {
	ID              uint64
	Name, Advertise string
	Key             []byte // public; empty: a founder whose process has stated none
	Ephemeral       bool   // it has no directory, so its key is lost with its process
	Registered      bool   // it has had a process in the group
	Silent          bool   // the failure detector has declared its last process dead
	Since           int64  // group time: of the admission until it is registered; of silence
}

// GroupConfig is the settings of a group.
type GroupConfig struct {
	Voters                    uint32
	ReplaceAfter, RemoveAfter int64 // ns; 0: never
}

// LivenessReport is a judgment of the leader's failure detector about the
// process of a member with that boot counter or an earlier one.
type LivenessReport struct {
	Member, Boot uint64
	Term         uint64 // in which the leader reports; no effect in another
	Alive        bool
}

// Entry is a key with its value and metadata. It is immutable: a write makes a new
// one, so any goroutine may read it.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64
	CreateIndex uint64
	ModifyIndex uint64
	LockIndex   uint64
	Session     ID     // zero: not locked
	Fence       uint64 // the largest of any write
}

// KeyChange is one change of one key.
type KeyChange struct {
	Index   uint64 // larger than that of every earlier change
	Entry   *Entry // after the change or, if deleted, before it
	Deleted bool
}

// LeaderChange is a new leader of an election, a new value of the leader, or the end
// of a leadership.
type LeaderChange struct {
	Election string
	Leader   *Leader // nil: none
}

// Leader is the leader of an election. It is immutable.
type Leader struct {
	Value   []byte
	Fence   uint64
	Session ID
	Member  uint64
}

// Bytes returns the size of the value; 0 for no leader.
func (l *Leader) Bytes() int {
	if l == nil {
		return 0
	}
	return len(l.Value)
}

// Result is the effects of applying one entry.
type Result struct {
	Changes  []Change
	Outcomes []Outcome
	Ended    []Ended
	Keys     []KeyChange
	Leaders  []LeaderChange
	Recalls  []Recall
	// Listed: what lists of members, sessions and checks show has changed. Renewals do not count.
	Listed bool
}

// InOrder passes the outcomes and the ends of sessions on, in the order in which the entry
// caused them.
func (r *Result) InOrder(outcome func(Outcome), ended func(Ended)) {
	rest := r.Ended
	for i, o := range r.Outcomes {
		for ; len(rest) > 0 && rest[0].Outcomes <= i; rest = rest[1:] {
			ended(rest[0])
		}
		outcome(o)
	}
	for _, e := range rest {
		ended(e)
	}
}
