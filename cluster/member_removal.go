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
	"github.com/conclave-go/conclave/cluster/roster"
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

// Removals is this process's part in the removal of members: of its own member and of others.
// It may be used on any goroutine.
type Removals struct {
	removalsConfig
	refusals  refusals
	confirmed context.Context // done once this member's removal is confirmed
	confirm   context.CancelFunc
	found     atomic.Bool    // it is confirmed, and consider has seen that
	inLog     atomic.Bool    // the confirmed removal is in this member's own log
	requested atomic.Bool    // by Leave, which completes the removal
	changed   wait.Broadcast // set after a membership change, a connection, or a change of unconfirmed

	mu          sync.Mutex
	unconfirmed []uint64 // guarded by mu; members whose removal this process has applied and not confirmed to them
}

// removalsConfig is what Removals needs of its member.
type removalsConfig struct {
	self      uint64
	election  time.Duration
	heartbeat time.Duration
	group     leaver
	roster    *roster.Roster
	peerError func(member uint64) error // why there is no connection, by the transport; nil: there is one
	commands  Commands
	mark      func() error // marks the directory as removed
	// routine starts a goroutine that the member waits for, fail stops the member, done is
	// closed when it has stopped, and stopped returns why.
	routine func(name string, run func())
	fail    func(error)
	done    <-chan struct{}
	stopped func() error
}

// leaver is the replica as Removals uses it.
type leaver interface {
	group
	StepDown(context.Context) error
}

func newRemovals(cfg removalsConfig) *Removals {
	r := &Removals{removalsConfig: cfg}
	r.confirmed, r.confirm = context.WithCancel(context.Background())
	return r
}

func (r *Removals) update(change func(unconfirmed []uint64) []uint64) {
	r.mu.Lock()
	r.unconfirmed = change(r.unconfirmed)
	r.mu.Unlock()
	r.changed.Set()
}

func (r *Removals) allConfirmed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unconfirmed) == 0
}

// reconnected notes that a member accepts this one, for AwaitLeave too.
func (r *Removals) reconnected(member uint64) {
	r.refusals.remove(member)
	r.changed.Set()
}

// AwaitLeave blocks until this member can leave, as CheckLeave reports, or returns its error:
// ErrNoQuorumWithout after an election timeout, or when ctx is done. A member that has just
// started may not be connected to the others yet.
func (r *Removals) AwaitLeave(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, r.election)
	defer cancel()
	for {
		changed := r.changed.Wait()
		err := r.CheckLeave()
		if !errors.Is(err, ErrNoQuorumWithout) {
			return err
		}
		select {
		case <-changed:
		case <-bounded.Done():
			return err
		case <-r.done:
			return r.stopped()
		}
	}
}

// CheckLeave returns ErrLastVoter or ErrNoQuorumWithout if this member cannot leave
// now, according to its connections to the other members. The leader checks again.
func (r *Removals) CheckLeave() error {
	s := r.group.Status()
	voters := s.Conf.GetVoters()
	if !slices.Contains(voters, r.self) {
		return nil
	}
	reachable := func(ids []uint64) (n int) {
		for _, id := range ids {
			if id != r.self && !core.Includes(s.Removed, id) && r.peerError(id) == nil {
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
func (r *Removals) Leave(ctx context.Context) error {
	r.requested.Store(true)
	if err := r.stepDownToLeave(ctx); err != nil {
		return err
	}
	// A lagging member may receive the confirmation before the outcome of its own
	// command, or instead of it.
	requesting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.confirmed, cancel)()
	if err := r.RequestRemoval(requesting); err != nil && r.confirmed.Err() == nil {
		return err
	}
	select {
	case <-r.confirmed.Done():
		return r.record()
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return r.stopped()
	}
}

// stepDownToLeave transfers leadership if this member has it. It retries while no
// successor is up to date, as long as there is another voter. The only voter is succeeded by
// a standby, which the reconciler promotes.
func (r *Removals) stepDownToLeave(ctx context.Context) error {
	for len(r.voters()) > 1 {
		err := r.group.StepDown(ctx)
		if errors.Is(err, ErrNotLeader) || errors.Is(r.CheckLeave(), ErrLastVoter) {
			return nil
		}
		if !errors.Is(err, ErrNoSuccessor) {
			return err
		}
		timer := time.NewTimer(r.heartbeat)
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
func (r *Removals) RequestRemoval(ctx context.Context) error {
	reply, err := r.group.Execute(ctx, r.commands.RemoveMember(0, r.voters()))
	if err != nil {
		return err
	}
	switch reply.GetCode() {
	case wire.Code_OK:
		return nil
	case wire.Code_UNKNOWN_INCARNATION, wire.Code_REMOVED: // the latter refuses the registration that the command has waited for
		return r.checkRemoved(ctx)
	case wire.Code_INVALID: // all other voters leave too, which needs this one's vote
		if err := r.AwaitRemovals(ctx); err != nil {
			return err
		}
		return ErrLastVoter
	}
	return fmt.Errorf("the group refuses the removal with code %v: %s", reply.GetCode(), reply.GetDetail())
}

// checkRemoved returns nil if this member is removed, which also removes its process's
// registration, and ErrUnregistered if the registration has expired.
func (r *Removals) checkRemoved(ctx context.Context) error {
	var removed []uint64
	if err := r.group.Read(ctx, func(machine Machine) { removed = machine.Removed() }); err != nil {
		return err
	}
	if !core.Includes(removed, r.self) {
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
func (r *Removals) AwaitRemovals(ctx context.Context) error {
	err := r.await(ctx, func() bool { return !r.roster.Snapshot().HasAny(r.group.Status().Removed) })
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, confirmationElections*r.election)
	defer cancel()
	_ = r.await(bounded, r.allConfirmed) // one may have crashed, or another member confirmed it
	return nil
}

// AwaitRemoval blocks until a member is out of Raft's configuration as far as this member
// knows, or ctx is done.
func (r *Removals) AwaitRemoval(ctx context.Context, id uint64) error {
	return r.await(ctx, func() bool { return !r.roster.IsMember(id) })
}

func (r *Removals) await(ctx context.Context, done func() bool) error {
	for {
		changed := r.changed.Wait()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.done:
			return r.stopped()
		}
	}
}

// record marks the directory as removed if this member's own log contains the
// removal.
func (r *Removals) record() error {
	if !r.inLog.Load() {
		return nil
	}
	return r.mark()
}

// consider stops this member if its removal is confirmed, unless Leave waits for
// that: then a former process requested the removal and stopped before step 5.
func (r *Removals) consider(s *replica.Status) {
	if s == nil {
		return
	}
	refusers := r.refusals.refusing(transport.ReasonRemoved)
	confirmed, inLog := removalOf(r.self, s.Conf, s.Removed, refusers)
	if len(s.Conf.GetVoters()) == 0 { // it has no state to lose, and knows of no voters
		confirmed = len(refusers) > 0
	}
	if !confirmed || !r.found.CompareAndSwap(false, true) {
		return
	}
	r.inLog.Store(inLog)
	r.confirm()
	if !r.requested.Load() {
		r.routine("removal", func() {
			if err := r.record(); err != nil {
				r.fail(err)
			}
			r.fail(ErrRemoved)
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
func (r *Removals) isRemoved(id uint64) bool {
	s := r.group.Status()
	if s == nil || !core.Includes(s.Removed, id) {
		return false
	}
	r.update(func(unconfirmed []uint64) []uint64 {
		return slices.DeleteFunc(unconfirmed, func(other uint64) bool { return other == id })
	})
	return true
}

// applied records that a configuration is applied from which members are missing. recorded are those that the machine
// records as removed; the others were provisional.
func (r *Removals) applied(missing, recorded []uint64) {
	r.update(func(unconfirmed []uint64) []uint64 {
		return slices.DeleteFunc(append(unconfirmed, missing...), func(id uint64) bool { return id == r.self || !core.Includes(recorded, id) })
	})
}

func (r *Removals) voters() []uint64 { return votersOf(r.group) }
