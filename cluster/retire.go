package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// removal is what this member knows of its own removal from the group.
type removal struct {
	done    chan struct{} // closed when this member is a member no more
	once    sync.Once
	asked   atomic.Bool // by Retire, which sees to the rest
	deposed atomic.Bool // it led when it was removed
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

// Voters are those who decide, as far as this member knows.
func (m *Member) Voters() []uint64 { return m.status.Load().conf.GetVoters() }

// Retire takes this member out of the group for good: leave is the command by
// which the machine notes that. It blocks until this member has heard that it is
// a member no more, or ctx ends; and then the directory is marked, so that nobody
// opens it again.
func (m *Member) Retire(ctx context.Context, leave func(context.Context) error) error {
	m.removal.asked.Store(true)
	if err := m.handOver(ctx); err != nil {
		return err
	}
	if err := leave(ctx); err != nil {
		return err
	}
	select {
	case <-m.removal.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.done:
		return m.stopped()
	}
	m.outlast(ctx)
	return m.markLeft()
}

// handOver gives leadership away if this member has it, however often it takes.
func (m *Member) handOver(ctx context.Context) error {
	for {
		err := m.Transfer(ctx, 0)
		if errors.Is(err, ErrNotLeader) {
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

// outlast stays for two elections if this member led when it was removed: the
// others may not know yet that the removal was agreed on, and need its vote to
// find out.
func (m *Member) outlast(ctx context.Context) {
	if !m.removal.deposed.Load() {
		return
	}
	timer := time.NewTimer(2 * m.cfg.Election)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-m.done:
	}
}

func (m *Member) markLeft() error {
	return m.identity.save(func(r *wire.Identity) { r.Left = true })
}

func errLeft() error {
	return fmt.Errorf("%w: start with an empty directory, as a new member", ErrLeft)
}

// retired is for a member that was stopped between leaving and noting it.
func (m *Member) retired() error {
	if err := m.markLeft(); err != nil {
		return err
	}
	return errLeft()
}

// gone is called when this member is a member no more, by its own log or by the
// word of another. If nobody waits for it here, it left in an earlier life, and
// was stopped before it heard.
func (m *Member) gone() {
	m.removal.once.Do(func() {
		close(m.removal.done)
		if !m.removal.asked.Load() {
			m.routine("retire", func() { m.fail(m.retired()) })
		}
	})
}

func (m *Member) hasLeft(id uint64) bool {
	s := m.status.Load()
	return s != nil && slices.Contains(s.left, id)
}

// regroup acts on another membership, on the loop's goroutine.
func (m *Member) regroup(deposed bool) {
	m.meet(m.core.Status().Membership)
	if !m.members.has(m.identity.member) {
		m.removal.deposed.Store(deposed)
		m.gone()
	}
}
