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

	"github.com/conclave-go/conclave/internal/wire"
)

// removal is what this member knows of who is taken out of the group.
type removal struct {
	told      context.Context // ends when another has told this member that it is out
	tell      context.CancelFunc
	once      sync.Once
	asked     atomic.Bool   // by Retire, which sees to the rest
	regrouped chan struct{} // holds a token after a change of the membership, or of untold

	mu     sync.Mutex
	untold []uint64 // guarded by mu; who was taken out in this life, and has not heard it from here
}

var (
	// ErrOnlyVoter says that a group would have nobody left to decide.
	ErrOnlyVoter = errors.New("this is the only voter of the group")
	// ErrNoneToStay says that too few would stay to decide.
	ErrNoneToStay = errors.New("without this member there would be no majority of voters that answer")
)

// MayRetire says why this member cannot leave now. Whether the others are there
// is judged by the connections to them; whoever leads looks again.
func (m *Member) MayRetire() error {
	voters := m.status.Load().conf.GetVoters()
	if !slices.Contains(voters, m.identity.member) {
		return nil
	}
	if len(voters) == 1 {
		return ErrOnlyVoter
	}
	there := 0
	for _, id := range voters {
		if id != m.identity.member && m.port.PeerError(id) == nil {
			there++
		}
	}
	if there <= (len(voters)-1)/2 {
		return ErrNoneToStay
	}
	return nil
}

// Retire takes this member out of the group for good: leave is the command by
// which the machine notes that. It blocks until another member has told this one
// that it is out, or ctx ends; and then the directory is marked, so that nobody
// opens it again.
func (m *Member) Retire(ctx context.Context, leave func(context.Context) error) error {
	m.removal.asked.Store(true)
	if err := m.handOver(ctx); err != nil {
		return err
	}
	// Who is behind may be told that he is out and never hear of his command.
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.removal.told, cancel)()
	if err := leave(asking); err != nil && m.removal.told.Err() == nil {
		return err
	}
	select {
	case <-m.removal.told.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
	return m.markLeft()
}

// SeeOff blocks until all who have left are members no more, or ctx ends. Where
// all but this member leave, nobody else can take them out, or tell them so: they
// get a while to hear it.
func (m *Member) SeeOff(ctx context.Context) error {
	err := m.awaitRegrouped(ctx, func() bool { return !slices.ContainsFunc(m.status.Load().left, m.members.has) })
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience*m.cfg.Election)
	defer cancel()
	_ = m.awaitRegrouped(bounded, m.removal.allTold) // one may have crashed, or heard it elsewhere
	return nil
}

// patience is for how many election timeouts the last to leave waits for those who
// have gone to hear it.
const patience = 5

func (m *Member) awaitRegrouped(ctx context.Context, enough func() bool) error {
	for !enough() {
		select {
		case <-m.removal.regrouped:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.done:
			return m.stopped()
		}
	}
	return nil
}

func (r *removal) allTold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.untold) == 0
}

// note changes untold.
func (r *removal) note(change func(untold []uint64) []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.untold = change(r.untold)
}

func (r *removal) wake() {
	select {
	case r.regrouped <- struct{}{}:
	default:
	}
}

// Voters are those who decide, as far as this member knows.
func (m *Member) Voters() []uint64 { return m.status.Load().conf.GetVoters() }

// handOver gives leadership away if this member has it, however often it takes,
// and as long as there is another voter.
func (m *Member) handOver(ctx context.Context) error {
	for {
		err := m.Transfer(ctx, 0)
		if errors.Is(err, ErrNotLeader) || errors.Is(m.MayRetire(), ErrOnlyVoter) {
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
}

func (m *Member) markLeft() error {
	return m.identity.save(func(r *wire.Identity) { r.Left = true })
}

func errLeft() error {
	return fmt.Errorf("%w: start with an empty directory, as a new member", ErrLeft)
}

// gone is called when another member has told this one that it is a member no
// more. If nobody waits for it here, it left in an earlier life, and was stopped
// before it was told.
func (m *Member) gone() {
	m.removal.once.Do(func() {
		m.removal.tell()
		if !m.removal.asked.Load() {
			m.routine("retire", func() {
				if err := m.markLeft(); err != nil {
					m.fail(err)
				}
				m.fail(errLeft())
			})
		}
	})
}

// hasLeft is asked by the port about somebody who connects and is no member. If he
// has left, he is told.
func (m *Member) hasLeft(id uint64) bool {
	s := m.status.Load()
	if s == nil || !slices.Contains(s.left, id) {
		return false
	}
	m.removal.note(func(untold []uint64) []uint64 {
		return slices.DeleteFunc(untold, func(other uint64) bool { return other == id })
	})
	m.removal.wake()
	return true
}

// regroup acts on another membership, on the loop's goroutine. Who is out finds
// his connections closed, and is told why when he comes back.
func (m *Member) regroup(conf *raftpb.ConfState) {
	stays := func(id uint64) bool {
		return slices.Contains(conf.GetVoters(), id) || slices.Contains(conf.GetLearners(), id)
	}
	out := slices.DeleteFunc(slices.Clone(m.members.all()), stays)
	m.removal.note(func(untold []uint64) []uint64 {
		return slices.DeleteFunc(append(untold, out...), func(id uint64) bool { return id == m.identity.member })
	})
	m.meet(conf)
	for _, id := range out {
		m.port.RemovePeer(id)
	}
	m.removal.wake()
}
