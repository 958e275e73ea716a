package process

import (
	"context"
	"slices"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// sessions returns the sessions of the process's member.
func (s *served) sessions(ctx context.Context) (own []conclave.SessionID, err error) {
	list, err := grouptest.Collect(s.node.Sessions(ctx))
	for _, info := range list {
		if info.Node == s.node.Status().ID {
			own = append(own, info.ID)
		}
	}
	return own, err
}

// hold acquires a lock under a session that only its gossip check can end.
func (s *served) hold(ctx context.Context, lock string) (conclave.Fence, error) {
	session, err := s.node.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.locks[lock] = session.FencedLock(lock)
	s.mu.Unlock()
	return s.lock(lock).Lock(ctx)
}

// awaitKey blocks until a key exists.
func (s *served) awaitKey(ctx context.Context, key string) error {
	for e, err := range s.node.KV().Watch(ctx, key, 0) {
		if err != nil || e.Entry.Key == key {
			return err
		}
	}
	return nil
}

// alive returns the members that gossip shows alive to the process.
func (s *served) alive() (ids []conclave.MemberID) {
	for _, member := range s.node.Status().Members {
		if member.Alive {
			ids = append(ids, member.ID)
		}
	}
	return ids
}

func (r report) alive(member uint64) bool { return slices.Contains(r.Alive, conclave.MemberID(member)) }
