package replica

import (
	"context"
	"slices"
	"sync"
)

// SnapshotTurns are what the replicas of a process share to send one snapshot at a time to each member, which accepts no more of one
// sender. The others wait, the default group's before all of them, since the members of each group follow its own. The zero value is
// ready.
type SnapshotTurns struct {
	mu    sync.Mutex
	queue map[uint64][]*snapshotTurn // guarded by mu; by receiver: the one that is sent, and those that wait
}

// snapshotTurn is the turn of a group's snapshot for a receiver, from join to leave.
type snapshotTurn struct {
	of    *SnapshotTurns
	to    uint64
	begun chan struct{} // closed when it may be sent
}

// join appends a snapshot. The channel of the turn may be closed already: then no other one is sent.
func (t *SnapshotTurns) join(to uint64, group uint32) *snapshotTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := &snapshotTurn{of: t, to: to, begun: make(chan struct{})}
	queue := t.queue[to]
	switch {
	case len(queue) == 0:
		if t.queue == nil {
			t.queue = make(map[uint64][]*snapshotTurn)
		}
		close(turn.begun)
		t.queue[to] = []*snapshotTurn{turn}
	case group == 0:
		t.queue[to] = slices.Insert(queue, 1, turn)
	default:
		t.queue[to] = append(queue, turn)
	}
	return turn
}

// leave has the next one begin, if this one has begun.
func (s *snapshotTurn) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	queue := s.of.queue[s.to]
	i := slices.Index(queue, s)
	queue = slices.Delete(queue, i, i+1)
	if len(queue) == 0 {
		delete(s.of.queue, s.to)
		return
	}
	s.of.queue[s.to] = queue
	if i == 0 {
		close(queue[0].begun)
	}
}

func (s *snapshotTurn) hasBegun() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

// await blocks until the snapshot may be sent, or ctx is done.
func (s *snapshotTurn) await(ctx context.Context) error {
	select {
	case <-s.begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
