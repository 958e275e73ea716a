// Package fact holds the plain values that pass between the machine, the member and this process's side of
// the protocol. They are no messages: nothing encodes them.
package fact

import "github.com/conclave-go/conclave/internal/wire"

// Outcome is the result of a command, addressed to its ticket and the member that
// submitted it. If More is set, a second outcome for the ticket follows.
type Outcome struct {
	Ticket wire.Ticket
	Member uint64
	Reply  *wire.Reply
	More   bool
}

// Ended notifies an incarnation that a session bound to it has ended or, with
// Unbound, that the session lives on and is no longer bound to it. A process must learn
// the end of a session before it learns that another owner was granted what the session
// held, so an Ended has a place among the outcomes of its entry.
type Ended struct {
	Incarnation wire.ID
	Session     wire.ID
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
	Session     wire.ID
	Incarnation wire.ID
	Lock        string
	Handle      uint64
	Shared      bool   // of a shared hold, or of a waiter for one
	Share       uint64 // number of a shared hold
}

// MemberLiveness is what the group holds of the last registered process of a member.
type MemberLiveness struct {
	Member, Boot uint64
	Silent       bool // the failure detector has declared it dead
	Registered   bool // it has not deregistered, and its registration has not expired
	Crashed      bool // a majority of the voters has declared that it crashed
}

// MemberRecord is what the group holds of a member that was not removed.
type MemberRecord struct {
	ID              uint64
	Name, Advertise string
	Key             []byte // public; empty: a founder whose process has stated none
	Ephemeral       bool   // it has no directory, so its key is lost with its process
	Registered      bool   // it has had a process in the group
	Level           uint32 // the feature level that its last process supports
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

// CrashReport is a judgment of a majority of the voters about the process of a member with
// that boot counter, and no other.
type CrashReport struct {
	Member, Boot uint64
	Term         uint64 // in which the leader reports; no effect in another
	Crashed      bool
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
	Session     wire.ID // zero: not locked
	Fence       uint64  // the largest of any write
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

// ShardChange is a shard of a set that was granted to a worker, is to move from it, or has no owner any more. With All, more
// than that has changed: the set is to be read again.
type ShardChange struct {
	Set     string
	All     bool
	Shard   uint32
	Fence   uint64 // 0: it has no owner
	Session wire.ID
	Handle  uint64
	Moving  bool // the owner is to release it
}

// Leader is the leader of an election. It is immutable.
type Leader struct {
	Value   []byte
	Fence   uint64
	Session wire.ID
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
	Changes  []wire.Change
	Outcomes []Outcome
	Ended    []Ended
	Keys     []KeyChange
	Leaders  []LeaderChange
	Recalls  []Recall
	Shards   []ShardChange
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
