package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Set is a handle to several locks that it takes as a whole. It is a Lock whose commands name the set: one hold with
// one fence, which is neither re-entered nor lingers.
type Set struct {
	Lock
	parts parts
	turns turns
}

// parts are the names of a set, each once.
type parts struct{ exclusive, shared []string }

// SetConfig describes a handle to a set. It keeps the slices.
type SetConfig struct {
	LockConfig        // Name is for people; neither Reentrant nor Linger
	Exclusive, Shared []string
}

// Init makes s a new handle. s must be a zero Set.
func (s *Set) Init(c *Client, cfg SetConfig) {
	s.parts = parts{cfg.Exclusive, cfg.Shared}
	s.Lock.Init(c, cfg.LockConfig)
	s.Lock.parts = &s.parts
}

// Acquire acquires all names, as [Lock.Acquire] does one.
func (s *Set) Acquire(ctx context.Context, wait bool, tr *Trace) (fence uint64, err error) {
	if err := s.client.hasSets(); err != nil {
		return 0, err
	}
	if len(s.parts.exclusive) > 0 { // they keep the calls of the handle apart
		return s.Lock.Acquire(ctx, wait, nil, tr)
	}
	if err := s.turn(ctx, wait); err != nil {
		return 0, err
	}
	acquired := false
	defer func() {
		if !acquired { // nor is it if the tracer ends the goroutine
			s.turns.end()
		}
	}()
	fence, err = s.Lock.Acquire(ctx, wait, nil, tr)
	if acquired = err == nil; acquired {
		s.turns.changed()
	}
	return fence, err
}

// Release releases the set, as [Lock.Release] does.
func (s *Set) Release(ctx context.Context, tr *Trace) error {
	t := s.take()
	if t.hold != nil && len(s.parts.exclusive) == 0 {
		s.turns.end()
	}
	return s.releaseTaken(ctx, t, tr)
}

// hasSets returns why the group does not know sets.
func (c *Client) hasSets() error {
	if c.group.Level() >= wire.LevelSets {
		return nil
	}
	return belowLevel("knows LockSet")
}

// FenceOf returns the fence of one name of the set, which is that of the set unless the name is shared. It reads the
// clock. The set must have the name.
func (s *Set) FenceOf(name string) (uint64, error) {
	h := s.present()
	switch {
	case h == nil:
		return 0, &Fault{Kind: NotHeld}
	case h.isLost():
		return 0, h.loss()
	}
	if at := slices.Index(s.parts.shared, name); at >= 0 {
		return h.fences[at], nil
	}
	return h.fence, nil
}

// IsHolder is as [Lock.IsHolder], and reports it of an owner that waits if another call of this handle does.
func (s *Set) IsHolder(holder *wire.Holder) bool {
	if !holder.GetWaiting() {
		return s.Lock.IsHolder(holder)
	}
	lease := s.client.ownOf(s.lease)
	return lease != nil && s.number == holder.GetHandle() && bytes.Equal(lease.id[:], holder.GetSession())
}

// fencesOf returns the fences of the shared names of a grant; p is nil for a single lock.
func (p *parts) fencesOf(r *wire.Reply) ([]uint64, error) {
	if p == nil {
		return nil, nil
	}
	fences := r.GetSet().GetFences()
	if len(fences) != len(p.shared) {
		return nil, refusal(&wire.Reply{
			Code: wire.Code_INVALID, Detail: fmt.Sprintf("grant of a set with %d fences of shared names, want %d", len(fences), len(p.shared)),
		})
	}
	return fences, nil
}

// turns has the calls of a handle take turns, from the request until the release. It is for a set of shared names
// only, which the group would grant to the same handle again.
type turns struct {
	mu    sync.Mutex
	taken bool          // guarded by mu
	news  chan struct{} // guarded by mu; closed at the next change; nil: none waits for one
}

// begin takes the turn, or returns a channel that is closed when there is news.
func (t *turns) begin() (news <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		return nil
	}
	if t.news == nil {
		t.news = make(chan struct{})
	}
	return t.news
}

// end ends the turn.
func (t *turns) end() {
	t.mu.Lock()
	t.taken = false
	t.mu.Unlock()
	t.changed()
}

// changed has those that wait look again.
func (t *turns) changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
}

// turn waits until no other call of the handle holds the set or requests it.
func (s *Set) turn(ctx context.Context, wait bool) error {
	for {
		if ctx.Err() != nil {
			return contextFault(Interrupted, ctx)
		}
		if err := s.client.Usable(); err != nil {
			return err
		}
		news := s.turns.begin()
		if news == nil {
			return nil
		}
		h := s.present() // what is granted later is news
		switch {
		case h != nil && h.isLost():
			return h.loss()
		case !wait:
			return refusal(&wire.Reply{Code: wire.Code_LOCKED}) // by itself: there is nothing to say of another owner
		}
		var lost <-chan struct{}
		if h != nil {
			lost = h.losing().Done()
		}
		select {
		case <-news:
		case <-lost:
		case <-ctx.Done():
		}
	}
}
