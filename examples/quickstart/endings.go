package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// The chapters in which a holder, a session or the leader ends.

func (s *story) holderCrashes(ctx context.Context) error {
	_, holder, next, err := s.group.roles(ctx)
	if err != nil {
		return err
	}
	crashing, successor := s.ownerAt(holder, "ledger"), s.ownerAt(next, "ledger")
	old, err := crashing.lock(ctx)
	if err != nil {
		return err
	}
	if err := s.write(holder, old, "rent"); err != nil {
		return err
	}
	waiting, err := successor.queue(ctx, 1)
	if err != nil {
		return err
	}
	holder.Kill()
	s.line.event(holder.Name(), "killed", "no graceful shutdown; one of its writes is still on its way to the ledger")
	err = await(s.line, fmt.Sprintf("for %s's session to expire; its TTL is %v", holder.Name(), sessionTTL), waiting.wait)
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
	s.line.event("ledger", "refuses", "%s's late write with fence %v: %v", holder.Name(), old, err)
	if !errors.Is(err, conclave.ErrStaleFence) || len(s.ledger.entries) != 2 {
		return fmt.Errorf("the ledger took a stale write: error %v, entries %q", err, s.ledger.entries)
	}
	if err := successor.unlock(ctx); err != nil {
		return err
	}
	return s.restart(ctx, holder)
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
	if err := ben.Node.CloseSession(ctx, info.Session); err != nil {
		return err
	}
	s.line.event("ben", "CloseSession", "closes the session that holds fence %v", info.Fence)
	select {
	case <-lost:
		s.line.event("anna", "Lost", "is notified that the lock is lost")
	case <-ctx.Done():
		return fmt.Errorf("anna was not notified: %w", ctx.Err())
	}
	_, err = anna.handle.Lock(ctx) // although the lock is free
	if err := anna.refused("Lock", err, conclave.ErrLockOwnershipLost); err != nil {
		return err
	}
	if err := anna.handle.Unlock(ctx); !errors.Is(err, conclave.ErrLockOwnershipLost) {
		return fmt.Errorf("anna's Unlock of the lost hold: %w", err)
	}
	s.line.event("anna", "Unlock", "gives up the lost hold; the handle is usable again")
	fence, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	if fence <= old {
		return fmt.Errorf("got fence %v, want more than %v", fence, old)
	}
	return anna.unlock(ctx)
}

func (s *story) gracefulShutdown(ctx context.Context) error {
	_, holder, next, err := s.group.roles(ctx)
	if err != nil {
		return err
	}
	closing, successor := s.ownerAt(holder, "shutdown"), s.ownerAt(next, "shutdown")
	old, err := closing.lock(ctx)
	if err != nil {
		return err
	}
	waiting, err := successor.queue(ctx, 1)
	if err != nil {
		return err
	}
	s.line.event(holder.Name(), "Close", "shuts down gracefully")
	closed := make(chan error, 1)
	go func() { closed <- holder.Close() }()
	if _, err := waiting.granted(old); err != nil {
		return err
	}
	if err := <-closed; err != nil {
		return err
	}
	if err := successor.unlock(ctx); err != nil {
		return err
	}
	return s.restart(ctx, holder)
}

func (s *story) leaderCrashes(ctx context.Context) error {
	leader, holder, next, err := s.group.roles(ctx)
	if err != nil {
		return err
	}
	has, successor := s.ownerAt(holder, "leader"), s.ownerAt(next, "leader")
	old, err := has.lock(ctx)
	if err != nil {
		return err
	}
	waiting, err := successor.queue(ctx, 1)
	if err != nil {
		return err
	}
	leader.Kill()
	s.line.event(leader.Name(), "killed", "it was the leader; no graceful shutdown")
	err = await(s.line, "for a new leader", func() error { return has.unlock(ctx) })
	if err != nil {
		return err
	}
	if _, err := waiting.granted(old); err != nil {
		return err
	}
	if err := successor.holdsOnce(ctx); err != nil {
		return err
	}
	return successor.unlock(ctx)
}
