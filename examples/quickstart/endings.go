package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conclave-go/conclave"
)

// The chapters in which a holder, a session or a leader comes to an end.

func (s *story) holderDies(ctx context.Context) error {
	_, holder, next, err := s.group.roles()
	if err != nil {
		return err
	}
	dying, heir := s.ownerAt(holder, "ledger"), s.ownerAt(next, "ledger")
	old, err := dying.lock(ctx)
	if err != nil {
		return err
	}
	if err := s.write(holder, old, "rent"); err != nil {
		return err
	}
	waiting, err := heir.queue(ctx, 1)
	if err != nil {
		return err
	}
	holder.kill()
	s.line.event(holder.name, "killed", "without farewell; a write of its is still on its way to the ledger")
	err = await(s.line, fmt.Sprintf("for %s's session to end; its TTL is %v", holder.name, sessionTTL), waiting.wait)
	if err != nil {
		return err
	}
	fence, err := waiting.granted(old)
	if err != nil {
		return err
	}
	if err := s.write(next, fence, "wages"); err != nil {
		return err
	}
	err = s.ledger.book("ledger", old, "rent, once more")
	s.line.event("ledger", "refuses", "%s's late write with fence %v: %v", holder.name, old, err)
	if !errors.Is(err, conclave.ErrStaleFence) || len(s.ledger.entries) != 2 {
		return fmt.Errorf("the ledger took a stale write: %v, %q", err, s.ledger.entries)
	}
	if err := heir.unlock(ctx); err != nil {
		return err
	}
	return s.comeBack(ctx, holder)
}

func (s *story) forceClose(ctx context.Context) error {
	anna, ben := s.owner(0, "forced"), s.owner(1, "forced")
	old, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	lost := anna.handle.Lost()
	info, err := ben.handle.Info(ctx)
	if err != nil {
		return err
	}
	if err := ben.node.CloseSession(ctx, info.Session); err != nil {
		return err
	}
	s.line.event("ben", "CloseSession", "ends the session that holds fence %v", info.Fence)
	select {
	case <-lost:
		s.line.event("anna", "Lost", "is told that the lock is gone")
	case <-ctx.Done():
		return fmt.Errorf("anna was not told: %w", ctx.Err())
	}
	_, err = anna.handle.Lock(ctx) // though nobody else has taken it
	if err := anna.refused("Lock", err, conclave.ErrLockOwnershipLost); err != nil {
		return err
	}
	if err := anna.handle.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return fmt.Errorf("anna's Unlock of what was lost: %w", err)
	}
	s.line.event("anna", "Unlock", "says so once more; the handle owes nothing now and starts anew")
	fence, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	if fence <= old {
		return fmt.Errorf("fence %v after %v", fence, old)
	}
	return anna.unlock(ctx)
}

func (s *story) farewell(ctx context.Context) error {
	_, holder, next, err := s.group.roles()
	if err != nil {
		return err
	}
	leaving, heir := s.ownerAt(holder, "farewell"), s.ownerAt(next, "farewell")
	old, err := leaving.lock(ctx)
	if err != nil {
		return err
	}
	waiting, err := heir.queue(ctx, 1)
	if err != nil {
		return err
	}
	began := time.Now()
	s.line.event(holder.name, "Close", "takes leave")
	closed := make(chan error, 1)
	go func() { closed <- holder.node.Close(ctx) }()
	if _, err := waiting.granted(old); err != nil {
		return err
	}
	if err := <-closed; err != nil {
		return err
	}
	holder.node = nil
	if took := time.Since(began); took >= sessionTTL {
		return fmt.Errorf("the farewell took %v; that is no faster than the TTL", took)
	}
	if err := heir.unlock(ctx); err != nil {
		return err
	}
	return s.comeBack(ctx, holder)
}

func (s *story) leaderDies(ctx context.Context) error {
	leader, holder, next, err := s.group.roles()
	if err != nil {
		return err
	}
	has, wants := s.ownerAt(holder, "leader"), s.ownerAt(next, "leader")
	old, err := has.lock(ctx)
	if err != nil {
		return err
	}
	waiting, err := wants.queue(ctx, 1)
	if err != nil {
		return err
	}
	leader.kill()
	s.line.event(leader.name, "killed", "the leader, without farewell")
	err = await(s.line, "for a new leader", func() error { return has.unlock(ctx) })
	if err != nil {
		return err
	}
	if _, err := waiting.granted(old); err != nil {
		return err
	}
	if err := wants.holdsOnce(ctx); err != nil {
		return err
	}
	return wants.unlock(ctx)
}
