package conclave

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
)

// Events is a set of functions that a node calls when something happens. Each may
// be nil. The node calls them one at a time, in order, on a goroutine of its own. A
// function that blocks delays the later calls; up to 1,024 wait, and further ones
// are dropped with a line in the log. Events may come before Open has returned. A
// function must not wait for Open or Close: Close waits for it, up to 3 seconds, and drops
// the calls that are left then. A panic in one is logged, and the next call is made.
type Events struct {
	// LeaderChanged reports the leader of the group's Raft term; with ID 0 if none is known.
	LeaderChanged func(leader Member, term uint64)
	// SessionEnded reports that a session of this node has ended, and why, also by
	// Session.Close, Close or Leave.
	SessionEnded func(id SessionID, why error)
	// LockLost reports a lost hold of this node: of a lock, an election or permits, a run of a job, or a shard.
	// It is not called for a hold that the node releases: by Unlock, Session.Close,
	// Close or Leave.
	LockLost func(name string, fence Fence)
	// HoldLost is LockLost with the name of the group of the hold, as a name in two groups is two locks; "": the default group. Of one loss both are
	// called, LockLost first.
	HoldLost func(group, name string, fence Fence)

	// The members below are described as this node saw them at the change: their names and addresses are
	// empty where it had not learned them yet. Lag and LastContact are 0.

	// MemberJoined reports a new member, which begins as a standby.
	MemberJoined func(member Member)
	// MemberPromoted reports a standby that votes from now on.
	MemberPromoted func(member Member)
	// MemberDemoted reports a voter that is a standby from now on.
	MemberDemoted func(member Member)
	// MemberReplaced reports a voter that is a standby from now on, and the standby that
	// votes in its place.
	MemberReplaced func(member, by Member)
	// MemberRemoved reports a member that does not belong to the group any more.
	MemberRemoved func(member Member)
	// RedundancyChanged reports Status.Redundancy. The functions above are called as this
	// member applies the log, so each member calls them for each change that it has not
	// skipped by a snapshot; this one follows the failure detector's view as well.
	RedundancyChanged func(voters int)
}

const maxEvents = 1024

// events calls an application's functions.
type events struct {
	on       Events
	log      *slog.Logger
	describe func(MemberID) Member // a member as this node sees it; nil for a client
	queue    chan func()
	dropping atomic.Bool // since the last call

	abandoned atomic.Bool // no further call is made
}

func newEvents(on *Events, log *slog.Logger) *events {
	e := &events{log: log, queue: make(chan func(), maxEvents)}
	if on != nil {
		e.on = *on
	}
	return e
}

// run has the calls made that are queued until done is closed, and those that are left then.
// It returns when that has happened, or a function has not returned for too long after done.
func (e *events) run(done <-chan struct{}) {
	ended := make(chan struct{})
	go e.serve(done, ended)
	<-done
	timer := time.NewTimer(eventGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		e.abandoned.Store(true)
		e.log.Warn("closing without an event function that has not returned")
	}
}

// serve makes the calls. A function may end the goroutine by runtime.Goexit, as a test's FailNow
// does; then another one goes on.
func (e *events) serve(done <-chan struct{}, ended chan<- struct{}) {
	finished := false
	defer func() {
		if !finished {
			go e.serve(done, ended)
		}
	}()
	for !e.abandoned.Load() {
		select {
		case f := <-e.queue:
			e.call(f)
			continue
		default:
		}
		select {
		case f := <-e.queue:
			e.call(f)
			continue
		case <-done:
		}
		if len(e.queue) == 0 {
			break
		}
	}
	finished = true
	close(ended)
}

// call shields the node from a panic of the application.
func (e *events) call(f func()) {
	e.dropping.Store(false)
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("an event function panicked", "panic", r)
		}
	}()
	f()
}

func (e *events) put(f func()) {
	select {
	case e.queue <- f:
	default:
		if e.dropping.CompareAndSwap(false, true) {
			e.log.Warn("events dropped: an event function blocks")
		}
	}
}

func (e *events) leaderChanged(leader, term uint64) {
	if f := e.on.LeaderChanged; f != nil {
		e.put(func() { f(e.describe(MemberID(leader)), term) })
	}
}

func (e *events) roleChanged(r cluster.RoleEvent) {
	on := map[cluster.RoleKind]func(Member){
		cluster.Joined: e.on.MemberJoined, cluster.Promoted: e.on.MemberPromoted,
		cluster.Demoted: e.on.MemberDemoted, cluster.Removed: e.on.MemberRemoved,
	}
	if f := on[r.Kind]; f != nil {
		e.put(func() { f(memberOf(r.Member)) })
	}
	if f := e.on.MemberReplaced; f != nil && r.Kind == cluster.Replaced {
		e.put(func() { f(memberOf(r.Member), memberOf(r.By)) })
	}
}

func (e *events) redundancyChanged(voters int) {
	if f := e.on.RedundancyChanged; f != nil {
		e.put(func() { f(voters) })
	}
}

func (e *events) sessionEnded(id SessionID, why error) {
	if f := e.on.SessionEnded; f != nil {
		e.put(func() { f(id, why) })
	}
}

// holdLost reports a lost hold in a further group, or in the default group with "".
func (e *events) holdLost(group, name string, fence Fence) {
	if f := e.on.LockLost; f != nil {
		e.put(func() { f(name, fence) })
	}
	if f := e.on.HoldLost; f != nil {
		e.put(func() { f(group, name, fence) })
	}
}
