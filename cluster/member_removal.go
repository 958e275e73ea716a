package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// The removal of a member:
//
//	1. Leave transfers leadership, if this member has it.
//	2. It submits RemoveMember, as another member may do in its place. The machine records
//	   the member as removed, unless no other member would remain that can vote. A member
//	   that has been silent for too long the machine records so by itself.
//	3. The leader makes Raft's configuration agree with the machine's record
//	   (cluster/reconcile/removal.go): it demotes the member to a standby, in one joint change with
//	   the promotion of a standby if there is one, then removes it.
//	4. A remaining member that has applied the second change closes its connections to
//	   the removed member, after a grace period in which the change itself is sent, and
//	   refuses new ones.
//	5. The removed member stops, and its directory cannot be used again.
//
// Two observations let a member stop in step 5:
//
//   - Its own log contains the first change, and a remaining voter refuses it. Only then
//     is the removal recorded in the directory. Its log alone is not sufficient, because
//     the remaining voters may yet lose the knowledge that the change is committed in a
//     power loss, and need its vote again: a voter refuses once the second change is
//     durable in its configuration. The outcome of step 2 is not sufficient either.
//   - A majority of the voters that it last knew, each of which has proved its key, refuse
//     it as removed. One of them may be faulty, so nothing is recorded: the next start
//     is refused by a majority again.
//
// No single message makes a member stop.
//
// A process that stops between steps 2 and 5 continues with step 5 when its directory is
// opened again. If all members leave at once, the last voter is refused in step 2. It
// waits in AwaitRemovals, since only it can confirm the removal of the others.

// Sentinel errors of leaving.
var (
	// ErrLastVoter: without this member the group would have no voter.
	ErrLastVoter = errors.New("the group would have no voter without this member")
	// ErrNoQuorumWithout: too few of the other voters are reachable.
	ErrNoQuorumWithout = errors.New("too few other voters are reachable to go on without this member: start them first; it has not left")
	// ErrRemoved: the directory's member has been removed from its group.
	ErrRemoved = identity.ErrRemoved
)

// removal is the state of removals in this process: of its own member and of others.
type removal struct {
	confirmed context.Context // done once this member's removal is confirmed
	confirm   context.CancelFunc
	found     atomic.Bool    // it is confirmed, and considerRemoval has seen that
	inLog     atomic.Bool    // the confirmed removal is in this member's own log
	requested atomic.Bool    // by Leave, which completes the removal
	changed   wait.Broadcast // set after a membership change, or a change of unconfirmed

	mu          sync.Mutex
	unconfirmed []uint64 // guarded by mu; members whose removal this process has applied and not confirmed to them
}

func (r *removal) init() {
	r.confirmed, r.confirm = context.WithCancel(context.Background())
}

func (r *removal) update(change func(unconfirmed []uint64) []uint64) {
	r.mu.Lock()
	r.unconfirmed = change(r.unconfirmed)
	r.mu.Unlock()
	r.changed.Set()
}

func (r *removal) allConfirmed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unconfirmed) == 0
}

// AwaitLeave blocks until this member can leave, as CheckLeave reports, or returns its error:
// ErrNoQuorumWithout after an election timeout, or when ctx is done. A member that has just
// started may not be connected to the others yet.
func (m *Member) AwaitLeave(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, m.cfg.Election)
	defer cancel()
	for {
		changed := m.removal.changed.Wait()
		err := m.CheckLeave()
		if !errors.Is(err, ErrNoQuorumWithout) {
			return err
		}
		select {
		case <-changed:
		case <-bounded.Done():
			return err
		case <-m.done:
			return m.stopped()
		}
	}
}

// CheckLeave returns ErrLastVoter or ErrNoQuorumWithout if this member cannot leave
// now, according to its connections to the other members. The leader checks again.
func (m *Member) CheckLeave() error {
	s := m.replica.Status()
	voters := s.Conf.GetVoters()
	if !slices.Contains(voters, m.identity.Member) {
		return nil
	}
	reachable := func(ids []uint64) (n int) {
		for _, id := range ids {
			if id != m.identity.Member && !core.Includes(s.Removed, id) && m.port.PeerError(id) == nil {
				n++
			}
		}
		return n
	}
	others, standbys := reachable(voters), reachable(s.Conf.GetLearners())
	switch {
	case standbys > 0 && others+1 > len(voters)/2: // one takes this member's place
		return nil
	case len(voters) == 1 && len(s.Conf.GetLearners()) == 0:
		return ErrLastVoter
	case len(voters) == 1 || others <= (len(voters)-1)/2:
		return ErrNoQuorumWithout
	}
	return nil
}

// Leave removes this member from the group permanently. It returns nil once the removal
// is confirmed and, if this member's own log contains it, the directory is marked as
// removed. It does not stop the member.
//
// Errors: ErrLastVoter; ErrUnregistered if this process's registration has expired;
// ErrStopped; ctx.Err(). After the last two the member may still be removed.
func (m *Member) Leave(ctx context.Context) error {
	m.removal.requested.Store(true)
	if err := m.stepDownToLeave(ctx); err != nil {
		return err
	}
	// A lagging member may receive the confirmation before the outcome of its own
	// command, or instead of it.
	requesting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.removal.confirmed, cancel)()
	if err := m.RequestRemoval(requesting); err != nil && m.removal.confirmed.Err() == nil {
		return err
	}
	select {
	case <-m.removal.confirmed.Done():
		return m.recordRemoval()
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
}

// stepDownToLeave transfers leadership if this member has it. It retries while no
// successor is up to date, as long as there is another voter. The only voter is succeeded by
// a standby, which the reconciler promotes.
func (m *Member) stepDownToLeave(ctx context.Context) error {
	for len(m.Voters()) > 1 {
		err := m.replica.StepDown(ctx)
		if errors.Is(err, ErrNotLeader) || errors.Is(m.CheckLeave(), ErrLastVoter) {
			return nil
		}
		if !errors.Is(err, ErrNoSuccessor) {
			return err
		}
		timer := time.NewTimer(m.cfg.Heartbeat)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// RequestRemoval is step 2 of Leave. It returns nil once the machine has noted the
// removal.
func (m *Member) RequestRemoval(ctx context.Context) error {
	reply, err := m.replica.Execute(ctx, m.cfg.Commands.RemoveMember(0, m.Voters()))
	if err != nil {
		return err
	}
	switch reply.GetCode() {
	case wire.Code_OK:
		return nil
	case wire.Code_UNKNOWN_INCARNATION:
		return m.checkRemoved(ctx)
	case wire.Code_INVALID: // all other voters leave too, which needs this one's vote
		if err := m.AwaitRemovals(ctx); err != nil {
			return err
		}
		return ErrLastVoter
	}
	return fmt.Errorf("the group refuses the removal with code %v: %s", reply.GetCode(), reply.GetDetail())
}

// checkRemoved returns nil if this member is removed, which also removes its process's
// registration, and ErrUnregistered if the registration has expired.
func (m *Member) checkRemoved(ctx context.Context) error {
	var removed []uint64
	if err := m.replica.Read(ctx, func(machine Machine) { removed = machine.Removed() }); err != nil {
		return err
	}
	if !core.Includes(removed, m.identity.Member) {
		return tickets.ErrUnregistered
	}
	return nil
}

// confirmationElections is for how many election timeouts the last voter waits for
// removed members to connect and receive their confirmation.
const confirmationElections = 5

// AwaitRemovals blocks until departed members are out of the Raft configuration, or
// ctx is done. It then waits, for a limited time, until this member has confirmed each
// removal: if all others leave, no other member can.
func (m *Member) AwaitRemovals(ctx context.Context) error {
	err := m.awaitRemoval(ctx, func() bool { return !m.roster.Snapshot().HasAny(m.replica.Status().Removed) })
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, confirmationElections*m.cfg.Election)
	defer cancel()
	_ = m.awaitRemoval(bounded, m.removal.allConfirmed) // one may have crashed, or another member confirmed it
	return nil
}

// AwaitRemoval blocks until a member is out of Raft's configuration as far as this member
// knows, or ctx is done.
func (m *Member) AwaitRemoval(ctx context.Context, id uint64) error {
	return m.awaitRemoval(ctx, func() bool { return !m.isMember(id) })
}

// IsMember reports whether a member is in Raft's configuration as far as this member knows.
func (m *Member) IsMember(id uint64) bool { return m.isMember(id) }

func (m *Member) awaitRemoval(ctx context.Context, done func() bool) error {
	for {
		changed := m.removal.changed.Wait()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.done:
			return m.stopped()
		}
	}
}

// recordRemoval marks the directory as removed if this member's own log contains the
// removal.
func (m *Member) recordRemoval() error {
	if !m.removal.inLog.Load() {
		return nil
	}
	return m.identity.Save(func(r *wire.Identity) { r.Removed = true })
}

// considerRemoval stops this member if its removal is confirmed, unless Leave waits for
// that: then a former process requested the removal and stopped before step 5.
func (m *Member) considerRemoval(s *replica.Status) {
	if s == nil {
		return
	}
	refusers := m.refusals.refusing(transport.ReasonRemoved)
	confirmed, inLog := removalOf(m.identity.Member, s.Conf, s.Removed, refusers)
	if len(s.Conf.GetVoters()) == 0 { // it has no state to lose, and knows of no voters
		confirmed = len(refusers) > 0
	}
	if !confirmed || !m.removal.found.CompareAndSwap(false, true) {
		return
	}
	m.removal.inLog.Store(inLog)
	m.removal.confirm()
	if !m.removal.requested.Load() {
		m.routine("removal", func() {
			if err := m.recordRemoval(); err != nil {
				m.fail(err)
			}
			m.fail(ErrRemoved)
		})
	}
}

// removalOf reports whether the removal of a member is confirmed, by its own applied log,
// which has conf and removed, and by the members that refuse it; and whether that log
// contains the removal.
func removalOf(self uint64, conf *raftpb.ConfState, removed, refusers []uint64) (confirmed, inLog bool) {
	voters := conf.GetVoters()
	inLog = core.Includes(removed, self) && !slices.Contains(voters, self)
	if inLog {
		return slices.ContainsFunc(refusers, func(id uint64) bool { return slices.Contains(voters, id) }), true
	}
	return majorityRefuses(self, voters, refusers), false
}

// isRemoved reports whether the transport must refuse id, which is no member, as
// removed. The refusal is this member's part of the confirmation of step 5.
func (m *Member) isRemoved(id uint64) bool {
	s := m.replica.Status()
	if s == nil || !core.Includes(s.Removed, id) {
		return false
	}
	m.removal.update(func(unconfirmed []uint64) []uint64 {
		return slices.DeleteFunc(unconfirmed, func(other uint64) bool { return other == id })
	})
	return true
}

// removalGrace is for how many heartbeats the connections of a removed member stay open,
// so that the change that removes it is sent.
const removalGrace = 2

// membershipChanged applies a membership change to the roster and the connections, on
// the loop's goroutine. It closes the connections of a removed member, which receives
// the confirmation when it connects again.
func (m *Member) membershipChanged(conf *raftpb.ConfState) {
	var removed []uint64
	known := core.MembersOf(m.withProvisional(conf))
	for _, p := range m.roster.Snapshot().Members {
		if !slices.Contains(known, p.ID) {
			removed = append(removed, p.ID)
		}
	}
	// Before the roster changes: AwaitRemovals reads both.
	recorded := m.core.Machine().Removed() // the others were provisional
	m.removal.update(func(unconfirmed []uint64) []uint64 {
		return slices.DeleteFunc(append(unconfirmed, removed...), func(id uint64) bool { return id == m.identity.Member || !core.Includes(recorded, id) })
	})
	before := m.roster.Snapshot()
	m.setMembership(conf)
	for _, id := range removed {
		m.routine("removal", func() { m.disconnect(id) })
		if core.Includes(recorded, id) {
			m.replica.Forget(id)
		}
	}
	m.removal.changed.Set()
	m.roles.note(conf, before, m.roster.Snapshot())
}

func (m *Member) disconnect(removed uint64) {
	timer := time.NewTimer(removalGrace * m.cfg.Heartbeat)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.lifetime.Done():
	}
	if m.isMember(removed) {
		return // it is one again: it was provisional, and this member's log has it now
	}
	m.port.RemovePeer(removed)
	if p := m.roster.Snapshot().Peer(removed); p != nil && m.isMember(removed) { // it has just become one
		m.dial(removed, p.GetAdvertise())
	}
}

// Voters returns the voters of Raft's configuration as far as this member knows.
func (m *Member) Voters() []uint64 { return m.replica.Status().Conf.GetVoters() }
