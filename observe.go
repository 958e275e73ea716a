package conclave

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Leader is who leads an election. The zero Leader, whose Fence is 0, is nobody.
type Leader struct {
	Value   []byte // that it campaigned with, or has proclaimed since
	Fence   Fence
	Session SessionID
	Node    MemberID
}

// Leader says who leads, from anywhere in the group. It is linearizable and
// blocks until a majority has confirmed that this node is up to date. By the time
// that it returns, somebody else may lead.
//
// ErrNoLeader: nobody leads, also while a lock-delay keeps the next candidate
// waiting. ErrUnavailable: ctx ended before there was a majority. ErrInvalid or
// ErrTooLarge: the name is none, or too many calls are under way. ErrClosed.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	l, _, err := e.leader(ctx)
	if err == nil && l.Fence == 0 {
		err = ErrNoLeader
	}
	return l, fault("leader", e.lock.name, err)
}

// Observe yields who leads now, the zero Leader if nobody does, and then each
// change: another leader, another value of the same one, or nobody.
//
// What it yields is in the order in which it happened. An observer that is
// slower than the changes come, or whose node was so far behind that it was sent
// the whole state, misses some, but always comes to the last.
//
// It ends when the loop is left. Otherwise the last pair that it yields is an
// error: ctx's, with ErrUnavailable if a majority could not be reached before it
// ended; ErrClosed; or ErrInvalid or ErrTooLarge as with Leader. It has no
// goroutine, and waits without polling.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		err := e.observe(ctx, func(l Leader) bool { return yield(l, nil) })
		if err != nil {
			yield(Leader{}, fault("observe", e.lock.name, err))
		}
	}
}

// observe calls yield until that has enough, which is no error, or no more can
// come. After a gap in the feed it begins anew with what is.
func (e *Election) observe(ctx context.Context, yield func(Leader) bool) error {
	var last Leader
	first := true
	for {
		now, at, err := e.leader(ctx)
		if err != nil {
			return err
		}
		if first || !now.same(last) {
			first, last = false, now
			if !yield(now) {
				return nil
			}
		}
		err = e.changes(ctx, at, func(l Leader) bool {
			last = l
			return yield(l)
		})
		if !errors.Is(err, ErrCompacted) {
			return err
		}
	}
}

// changes passes on what the feed has behind a position, until yield has enough
// or the feed has a gap.
func (e *Election) changes(ctx context.Context, after uint64, yield func(Leader) bool) error {
	n := e.lock.node
	for {
		items, err := follow(ctx, n, &n.feeds.leaders, after)
		if err != nil {
			return err
		}
		for _, i := range items {
			after = i.at
			if i.value.Election == e.lock.name && !yield(leaderOf(i.value.Leader)) {
				return nil
			}
		}
	}
}

// leader reads who leads, and the feed's position at that time.
func (e *Election) leader(ctx context.Context) (Leader, uint64, error) {
	if e.lock.bad != nil {
		return Leader{}, 0, e.lock.bad
	}
	n := e.lock.node
	var seen struct { // looked at only without an error: until then the loop may write
		leader *wire.Leader
		at     uint64
	}
	err := n.read(ctx, func(m *machine.Machine) {
		seen.leader, seen.at = m.Leader(e.lock.name), n.feeds.leaders.end()
	})
	if err != nil {
		return Leader{}, 0, err
	}
	return leaderOf(seen.leader), seen.at, nil
}

func leaderOf(l *wire.Leader) Leader {
	if l == nil {
		return Leader{}
	}
	return Leader{Value: clone(l.Value), Fence: Fence(l.Fence), Session: SessionID(l.Session), Node: MemberID(l.Member)}
}

func (l Leader) same(other Leader) bool {
	return l.Fence == other.Fence && bytes.Equal(l.Value, other.Value)
}
