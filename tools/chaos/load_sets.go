//go:build linux

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// mostNames is how many names a set has at most.
const mostNames = 4

// setTurn takes a set of locks that other clients take one by one.
func (c *client) setTurn() int {
	parts, limit := c.parts(), c.limit()
	s, call := c.set(parts, limit), record{Op: opLock, Parts: parts, Hold: c.label(), MaxHold: limit}
	take := s.Lock
	switch {
	case c.chance(20):
		return c.doSet(s, call)
	case c.chance(30):
		call.Op, take = opTry, s.TryLock
	}
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	r, err := c.asks(call, func() (record, error) {
		f, err := take(ctx)
		return outcomeOf(s, parts, f, err), err
	})
	if err != nil {
		return 1
	}
	c.release(s.Unlock, c.useSet(s, call, r))
	return 2
}

// doSet is a turn with Do: a call that returns when its function is called, and one from the end of that on.
func (c *client) doSet(s *conclave.LockSet, call record) int {
	ctx, cancel := c.within(time.Second, 8*time.Second)
	defer cancel()
	op, began, id := call.Op, now(), c.history.call(call)
	err := s.Do(ctx, func(_ context.Context, f conclave.Fence) error {
		of := c.useSet(s, call, c.answered(op, id, began, outcomeOf(s, call.Parts, f, nil), nil))
		op, began, id = of.Op, now(), c.history.call(of)
		return nil
	})
	c.answered(op, id, began, record{}, err)
	return 2
}

// useSet uses a set for a while, and returns the call that releases it.
func (c *client) useSet(s *conclave.LockSet, call, granted record) record {
	of := record{Op: opCheck, Parts: granted.Parts, Hold: call.Hold, Fence: granted.Fence}
	c.limited(s, of, call.MaxHold)
	c.useAs(s, of)
	if c.chance(10) { // others wait for some of its names, and a fault meets all of them
		_ = wait(context.Background(), time.Duration(c.random.Int64N(int64(600*time.Millisecond)))) // nothing ends it
		c.useAs(s, of)
	}
	of.Op = opUnlock
	return of
}

// parts returns the names of the next set, each once: some exclusively, and some of those that are for both modes shared.
func (c *client) parts() []part {
	var all []part
	for range 1 + c.random.IntN(mostNames) {
		p := part{}
		switch kind := c.random.IntN(10); {
		case kind < 4:
			p = part{Name: c.object(shared, sharedLocks), Shared: c.chance(50)}
		case kind < 6:
			p.Name = c.object("long", longLocks)
		case kind < 8:
			p.Name = c.object("lock", plainLocks)
		case kind < 9:
			p.Name = c.object("reentrant", reentrantLocks)
		default:
			p.Name = c.object(lingering, lingeringLocks)
		}
		if !slices.ContainsFunc(all, func(other part) bool { return other.Name == p.Name }) {
			all = append(all, p)
		}
	}
	return all
}

// set returns a handle to these names.
func (c *client) set(parts []part, limit time.Duration) *conclave.LockSet {
	var exclusively, inShared []string
	for _, p := range parts {
		if p.Shared {
			inShared = append(inShared, p.Name)
		} else {
			exclusively = append(exclusively, p.Name)
		}
	}
	return c.access.LockSet(exclusively, conclave.Shared(inShared...), conclave.MaxHold(limit))
}

// outcomeOf is the return of an acquisition. What is lost already may have fences that are not known.
func outcomeOf(s *conclave.LockSet, parts []part, f conclave.Fence, err error) record {
	if err != nil {
		return record{Taken: takenBy(err)}
	}
	read, err := fencesOf(s, parts)
	for i := range read {
		if err != nil && !read[i].Shared {
			read[i].Fence = uint64(f)
		}
	}
	return record{Fence: uint64(f), Parts: read}
}

// fencesOf reads the fence of each name of a set.
func fencesOf(s *conclave.LockSet, parts []part) (read []part, err error) {
	for _, p := range parts {
		f, failed := s.FenceOf(p.Name)
		p.Fence, err = uint64(f), errors.Join(err, failed)
		read = append(read, p)
	}
	return read, err
}

// takenBy returns the names that a refusal lists, with the fence of what holds each of them.
func takenBy(err error) (names []part) {
	var taken *conclave.TakenError
	if errors.As(err, &taken) {
		for _, n := range taken.Names {
			names = append(names, part{Name: n.Name, Shared: n.Shared, Fence: uint64(n.Fence)})
		}
	}
	return names
}
