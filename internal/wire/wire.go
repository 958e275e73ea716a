// Package wire holds the words that the floors share: the messages of
// wire.proto, and the plain values that pass between the machine and the
// cluster.
package wire

import "fmt"

//go:generate go -C ../../tools run ./protogen ../internal/wire github.com/conclave-go/conclave/internal/wire/wire.proto

// Versions of the formats. Data with a larger version is refused, not guessed at.
const (
	BatchVersion    = 1
	StateVersion    = 1
	IdentityVersion = 1
	SnapshotVersion = 1
	GossipVersion   = 1
	ProtocolMin     = 1
	ProtocolMax     = 1
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

// MemberID is a member's identity, as logs and errors print it.
type MemberID uint64

// String prints the ID as 16 hexadecimal digits.
func (id MemberID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Ticket names one call, so that it takes effect exactly once.
type Ticket struct {
	Incarnation ID
	Seq         uint64
}

// Change is one change of the durable state. A nil Value deletes the key.
type Change struct {
	Key, Value []byte
}

// Outcome is what a command yields, addressed to its ticket. With More set a
// later outcome to the same ticket follows.
type Outcome struct {
	Ticket Ticket
	Reply  *Reply
	More   bool
}

// Ended says that a session ended, to the incarnation that it is bound to; or,
// with Unbound, that it lives on and is bound to that incarnation no more.
type Ended struct {
	Incarnation ID
	Session     ID
	Unbound     bool
}

// MemberLiveness is what the group holds of the last registered process of a member.
type MemberLiveness struct {
	Member, Boot uint64
	Silent       bool // the failure detector has declared it dead
}

// LivenessReport is a judgment of the leader's failure detector about the
// process of a member with that boot counter or an earlier one.
type LivenessReport struct {
	Member, Boot uint64
	Term         uint64 // in which the leader reports; no effect in another
	Alive        bool
}

// Entry is a key and all that is kept of it. It is never changed: a write makes a
// new one, so it may be read anywhere.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64
	CreateIndex uint64
	ModifyIndex uint64
	LockIndex   uint64
	Session     ID     // zero: not locked
	Fence       uint64 // the largest that it was written with
}

// KeyChange is one change of one key.
type KeyChange struct {
	Index   uint64 // larger than that of every change before
	Entry   *Entry // what it is now, or was before it was deleted
	Deleted bool
}

// LeaderChange is a new leader of an election, a new value of it, or nobody.
type LeaderChange struct {
	Election string
	Leader   *Leader // nil: nobody
}

// Leader leads an election. It is never changed.
type Leader struct {
	Value   []byte
	Fence   uint64
	Session ID
	Member  uint64
}

// Bytes is the size of the value; nobody has none.
func (l *Leader) Bytes() int {
	if l == nil {
		return 0
	}
	return len(l.Value)
}

// Result is what applying one entry yields.
type Result struct {
	Changes  []Change
	Outcomes []Outcome
	Ended    []Ended
	Keys     []KeyChange
	Leaders  []LeaderChange
}
