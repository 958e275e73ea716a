package conclave

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/fact"
)

// HistoryEvent is something that has happened to the group or to this node.
type HistoryEvent struct {
	// Seq counts the events of this node from 1. A gap stands for events that were dropped.
	Seq  uint64
	Time time.Time // when this node noticed the event, by its wall clock
	Kind HistoryKind
	// Group is the name of the further group to which it has happened; "": the default group, whose members are those of all.
	Group string
	// Member is the new leader (0: none is known), the member whose role or liveness has changed, the
	// one whose process the session belonged to, or this node.
	Member MemberID
	By     MemberID // with HistoryMemberReplaced: the member that votes in its place
	// MemberName and ByName are the names at that time, of changes of roles and of liveness: a member that was
	// removed is in no list any more. "": not known.
	MemberName, ByName string
	Term               uint64 // with HistoryLeader: the Raft term
	// Voters is Status.Redundancy, with HistoryRedundancy.
	Voters int
	// Count is how many events this one stands for. Ends of sessions and losses of the same
	// kind, group and member within a second are one event; Session, Name and Fence are then those of
	// the first.
	Count   int
	Session SessionID // that has ended
	Name    string    // of the session, or of the lock, semaphore or election that was lost
	Held    int       // what the session held: locks, elections, acquisitions of permits, keys; of Count sessions together
	Fence   Fence     // of the hold that was lost
}

// HistoryKind is a kind of HistoryEvent.
type HistoryKind int

// The kinds of events.
const (
	HistoryLeader HistoryKind = iota + 1 // another leader, or none
	// HistorySnapshot: this node has installed a snapshot. Ends of sessions and changes of
	// roles in the entries that it stands for are not in the history.
	HistorySnapshot
	HistoryRedundancy // more or fewer voters may fail: Status.Redundancy

	HistoryMemberJoined   // a new member, which begins as a standby
	HistoryMemberPromoted // a standby votes
	HistoryMemberDemoted  // a voter does not vote any more
	HistoryMemberReplaced // a voter does not vote any more, and a standby does in its place
	HistoryMemberRemoved  // from the group
	// HistoryMemberDead: this node's failure detector declares a member dead, which it has seen alive.
	HistoryMemberDead
	HistoryMemberAlive // a member that was declared dead is alive

	HistorySessionExpired    // neither the session nor its process was renewed in time
	HistorySessionCheck      // a check of the session became critical, or was deregistered
	HistorySessionForced     // closed by force: Node.CloseSession
	HistorySessionSuperseded // the session's member has started another process
	HistorySessionRemoved    // the session's member was removed from the group

	HistoryHoldLost // a hold of this node, as Events.LockLost
)

// String returns the kind in lower case, as "session expired".
func (k HistoryKind) String() string {
	names := [HistoryHoldLost]string{
		"leader", "snapshot", "redundancy",
		"member joined", "member promoted", "member demoted", "member replaced", "member removed", "member dead", "member alive",
		"session expired", "session check", "session forced", "session superseded", "session removed",
		"hold lost",
	}
	if k >= 1 && k <= HistoryHoldLost {
		return names[k-1]
	}
	return fmt.Sprintf("HistoryKind(%d)", int(k))
}

// History returns what this node has noticed since Open, oldest first: the latest 256 events
// about members, and the latest 256 about sessions and holds, so that neither evicts the other; and as
// many of all further groups together. It begins with the leader at that time, and that of a further group with its
// leader when this process is registered there. It does not block, and works also after the node has stopped.
//
// It is this node's view, kept in memory. It has the end of each session of the group, in the
// order of the log, except of those that were closed gracefully: by Session.Close, Close or
// Leave of its node, or, if no process was bound to it, by any. What each released is not
// listed one by one; Held counts it. Losses are those of this node only: each node knows
// which of its handles trusted a hold. What happened before Open, in entries that a snapshot
// stands for, or while this node was partitioned and is not in the log, is not in it, nor is a
// grant or an ordinary release.
func (n *Node) History() []HistoryEvent { return n.history.events() }

// maxHistory is how many events each of the two rings has.
const maxHistory = 256

// merging is for how long events of a kind and member become one: a process may have 20,000
// sessions, and a million holds.
const merging = time.Second

// history notes what happens to a group. The goroutine that applies the log calls it, so it does not
// block, but for the time of a copy.
type history struct {
	*historyRings
	group  string    // "": the default one
	begun  bool      // guarded by mu
	leader [2]uint64 // guarded by mu; the latest one in members, and its term
}

// historyRings has the events of all groups.
type historyRings struct {
	mu       sync.Mutex
	last     uint64      // guarded by mu; the Seq of the latest event
	members  historyRing // guarded by mu
	sessions historyRing // guarded by mu

	furtherMembers, furtherSessions historyRing // guarded by mu; of the further groups, which must not evict events of the default one
}

// historyRing holds up to maxHistory events; then the latest replaces the oldest.
type historyRing struct {
	events []HistoryEvent
	oldest int // the place of the oldest once the ring is full, else 0
}

func newHistory() *history { return &history{historyRings: new(historyRings)} }

// of returns the history of a further group.
func (h *history) of(group string) *history {
	return &history{historyRings: h.historyRings, group: group}
}

// begin starts the history. What came before repeats entries of the log, of any age.
func (h *history) begin(leader, term uint64) {
	h.mu.Lock()
	h.begun = true
	h.mu.Unlock()
	h.leaderChanged(leader, term)
}

func (h *history) leaderChanged(leader, term uint64) {
	now := [2]uint64{leader, term}
	h.mu.Lock()
	known := h.begun && h.leader == now // a member that campaigns in vain changes its Raft state only
	if h.begun {
		h.leader = now
	}
	h.mu.Unlock()
	if !known {
		h.note(false, HistoryEvent{Kind: HistoryLeader, Member: MemberID(leader), Term: term})
	}
}

func (h *history) redundancyChanged(voters int) {
	h.note(false, HistoryEvent{Kind: HistoryRedundancy, Voters: voters})
}

func (h *history) livenessChanged(p cluster.Peer) {
	kind := HistoryMemberDead
	if p.Alive {
		kind = HistoryMemberAlive
	}
	h.note(false, HistoryEvent{Kind: kind, Member: MemberID(p.ID), MemberName: p.Name})
}

func (h *history) snapshotInstalled() { h.note(false, HistoryEvent{Kind: HistorySnapshot}) }

func (h *history) roleChanged(r cluster.RoleEvent) {
	kinds := map[cluster.RoleKind]HistoryKind{
		cluster.Joined: HistoryMemberJoined, cluster.Promoted: HistoryMemberPromoted, cluster.Demoted: HistoryMemberDemoted,
		cluster.Replaced: HistoryMemberReplaced, cluster.Removed: HistoryMemberRemoved,
	}
	h.note(false, HistoryEvent{Kind: kinds[r.Kind], Member: MemberID(r.Member.ID), By: MemberID(r.By.ID), MemberName: r.Member.Name, ByName: r.By.Name})
}

func (h *history) sessionEnded(e fact.Ended) {
	if e.Unbound || e.Cause == fact.Closed {
		return
	}
	kinds := [...]HistoryKind{
		fact.Expired: HistorySessionExpired, fact.CheckFailed: HistorySessionCheck, fact.Forced: HistorySessionForced,
		fact.Superseded: HistorySessionSuperseded, fact.MemberRemoved: HistorySessionRemoved,
	}
	h.note(true, HistoryEvent{
		Kind: kinds[e.Cause], Member: MemberID(e.Member), Session: SessionID(e.Session), Name: e.Name, Held: e.Held,
	})
}

func (h *history) holdLost(node MemberID, name string, fence Fence) {
	h.note(true, HistoryEvent{Kind: HistoryHoldLost, Member: node, Name: name, Fence: fence})
}

// note adds an event to the ring of sessions, or of members.
func (h *history) note(ofSession bool, e HistoryEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun {
		return
	}
	e.Time, e.Count, e.Group = time.Now(), 1, h.group
	ring := h.ring(ofSession)
	if ofSession && ring.merge(e) {
		return
	}
	h.last++
	e.Seq = h.last
	ring.add(e)
}

// ring returns the ring of events of the group. h.mu is held.
func (h *history) ring(ofSession bool) *historyRing {
	switch {
	case h.group == "" && ofSession:
		return &h.sessions
	case h.group == "":
		return &h.members
	case ofSession:
		return &h.furtherSessions
	}
	return &h.furtherMembers
}

func (r *historyRing) add(e HistoryEvent) {
	if len(r.events) < maxHistory {
		r.events = append(r.events, e)
		return
	}
	r.events[r.oldest] = e
	r.oldest = (r.oldest + 1) % maxHistory
}

// merge counts an event with one of the same kind, group and member of the last second.
func (r *historyRing) merge(e HistoryEvent) bool {
	n := len(r.events)
	for i := range n {
		like := &r.events[(r.oldest+n-1-i)%n] // from the latest on
		if e.Time.Sub(like.Time) > merging {
			return false
		}
		if like.Kind == e.Kind && like.Group == e.Group && like.Member == e.Member {
			like.Count++
			like.Held += e.Held
			return true
		}
	}
	return false
}

func (h *historyRings) events() []HistoryEvent {
	h.mu.Lock()
	all := slices.Concat(h.members.events, h.sessions.events, h.furtherMembers.events, h.furtherSessions.events)
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b HistoryEvent) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}
