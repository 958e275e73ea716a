package remote

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Finding a member: addresses are tried one after the other, each a little later than the one
// before and without waiting for that to fail ("Happy Eyeballs", RFC 8305), so that members that
// do not answer cost a part of what is left of the sessions and no more. The first member that
// has attached this process, and knows a leader, wins, and the other connections are closed.
// Until then nothing is submitted, so the losers differ in nothing from connections that broke.
//
// What failed is tried again while others do not answer: a member that is restarted refuses
// connections for a moment, and one that is silent would keep this process waiting for
// its timeout. The race ends with the last first attempt.

const (
	// minStagger and maxStagger bound the time between the beginnings of two attempts.
	minStagger, maxStagger = 10 * time.Millisecond, 250 * time.Millisecond
	// maxAttempts bounds the attempts under way, and with them the handshakes that one process
	// can cause at a time. At the limit the oldest makes room, if it is older than maxPatience or
	// a part of what is left.
	maxAttempts = 8
	maxPatience = time.Second
	// maxTargets bounds the attempts of a race.
	maxTargets = 512
	// maxWeak is how long a member that is of little use waits for a better one.
	maxWeak = time.Second
)

var (
	errSlower     = errors.New("another member has answered first, or it did not answer in its share of the time")
	errSameMember = errors.New("the member is reached at another address already")
)

// plan is what a race begins with.
type plan struct {
	identity  identity
	addresses []string
	left      map[uint64]bool // members that were left: the last resort
	time      time.Duration   // until the first session ends
}

// rank is of how much use a member is: less is better.
type rank int

const (
	useful     rank = iota
	wasLeft         // it has a leader, but was left before
	leaderless      // it has none
)

// attempt is one of a race: to look up a name, or to be attached by the member at a target.
type attempt struct {
	to       transport.Target
	lookUp   bool
	again    bool // it is not the first at its target, or looks up a name again
	began    time.Time
	cancel   context.CancelCauseFunc
	keep     func() bool // before the race ends: the connection survives it; false: it has ended
	link     *link
	attached *wire.Attached
	found    []transport.Target // by a lookup
	rank     rank
	err      error
}

// abandon closes what the attempt has opened.
func (a *attempt) abandon() {
	if a.cancel(errSlower); a.link != nil {
		a.link.conn.Close(errSlower)
	}
}

// race is a search for a member. The goroutine that runs it owns it, except for mu and members.
type race struct {
	group   *Group
	plan    plan
	cluster wire.ID // whose members are accepted; zero: of any
	ctx     context.Context
	results chan *attempt
	queue   []*attempt
	running []*attempt
	begun   int        // but for those that are tried again
	failed  []*attempt // to be tried again
	pause   time.Duration
	retryAt time.Time // when those are queued
	best    *attempt  // attached, of little use; nil: none
	until   time.Time // when best wins
	next    time.Time // when the next attempt begins
	err     error     // of the last that failed

	mu      sync.Mutex
	members map[uint64]bool // guarded by mu; that an attempt attaches to
}

// find returns the attempt that has won; its connection is attached.
func (g *Group) find(p plan, cluster wire.ID) (won *attempt, err error) {
	ctx, cancel := context.WithCancel(g.lifetime)
	defer cancel()
	r := &race{group: g, plan: p, cluster: cluster, ctx: ctx, results: make(chan *attempt), members: make(map[uint64]bool)}
	for _, addr := range p.addresses {
		r.queue = append(r.queue, &attempt{to: transport.Target{Addr: addr}, lookUp: g.dialer.Resolves(addr)})
	}
	defer func() {
		if r.best != nil && r.best != won {
			r.best.abandon()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if r.best != nil && !time.Now().Before(r.until) {
				return r.take(r.best)
			}
			r.retry()
			r.makeRoom()
			r.begin()
		case a := <-r.results:
			if r.receive(a); a.err == nil && !a.lookUp && a.rank == useful {
				return r.take(a)
			}
			r.begin()
		case <-g.lifetime.Done():
			return nil, g.closed()
		}
		if r.isOver() {
			if r.best == nil {
				return nil, cmp.Or(r.err, errSameMember)
			}
			return r.take(r.best)
		}
		timer.Reset(r.wait())
	}
}

// take makes an attempt the winner.
func (r *race) take(a *attempt) (*attempt, error) {
	if !a.keep() {
		return nil, a.link.conn.Err()
	}
	return a, nil
}

// isOver reports whether no first attempt is left.
func (r *race) isOver() bool {
	first := func(a *attempt) bool { return !a.again }
	return !slices.ContainsFunc(r.queue, first) && !slices.ContainsFunc(r.running, first)
}

// fails notes that an attempt is to be repeated, each time a little later.
func (r *race) fails(a *attempt) {
	if len(r.failed) == 0 {
		r.pause = min(max(2*r.pause, minPause), max(r.plan.time/8, minPause), maxPause)
		r.retryAt = time.Now().Add(r.pause/2 + rand.N(r.pause))
	}
	r.failed = append(r.failed, &attempt{to: a.to, lookUp: a.lookUp, again: true})
}

// retry queues the attempts that are to be repeated once it is time.
func (r *race) retry() {
	if len(r.queue) == 0 && !time.Now().Before(r.retryAt) {
		r.queue, r.failed = r.failed, nil
	}
}

// wait returns how long nothing is due.
func (r *race) wait() time.Duration {
	due := time.Hour
	switch {
	case len(r.queue) > 0:
		due = time.Until(r.next)
	case len(r.failed) > 0:
		due = time.Until(r.retryAt)
	}
	if r.best != nil {
		due = min(due, time.Until(r.until))
	}
	return max(due, 0)
}

// makeRoom ends the oldest attempt if there are too many.
func (r *race) makeRoom() {
	if len(r.queue) > 0 && len(r.running) >= maxAttempts && time.Since(r.running[0].began) >= min(maxPatience, r.plan.time/8) {
		r.running[0].cancel(errSlower) // its error is received next
	}
}

// begin begins the next attempt, if there is one and room for it.
func (r *race) begin() {
	r.next = time.Now().Add(min(max(r.plan.time/time.Duration(2*max(len(r.queue), 1)), minStagger), maxStagger))
	if len(r.queue) == 0 || len(r.running) >= maxAttempts {
		return
	}
	a := r.queue[0]
	r.queue = r.queue[1:]
	r.running = append(r.running, a)
	if !a.again {
		r.begun++
	}
	a.began = time.Now()
	r.group.place.tries(a.to.Addr)
	ctx, cancel := context.WithCancelCause(r.ctx)
	a.cancel = cancel
	r.group.routines.Go(func() {
		if a.lookUp {
			a.found, a.err = r.group.dialer.Resolve(ctx, a.to.Addr)
		} else {
			a.err = r.attach(ctx, a)
		}
		select {
		case r.results <- a:
		case <-r.ctx.Done():
			a.abandon()
		}
	})
}

// receive notes the result of an attempt.
func (r *race) receive(a *attempt) {
	r.running = slices.DeleteFunc(r.running, func(o *attempt) bool { return o == a })
	switch {
	case a.err != nil:
		a.cancel(nil)
		if !errors.Is(a.err, errSameMember) {
			r.fails(a)
			r.err = a.err
			r.group.place.set(nil, a.err)
			r.noteDeleted(a.err)
		}
		r.group.log.Debug("member not reached", "addr", a.to.Addr, "error", a.err)
	case a.lookUp:
		a.cancel(nil)
		for i, to := range a.found[:min(len(a.found), max(0, maxTargets-r.begun-len(r.queue)))] {
			r.queue = slices.Insert(r.queue, i, &attempt{to: to, again: a.again})
		}
	case a.rank == useful:
	case r.best == nil:
		r.best, r.until = a, time.Now().Add(min(maxWeak, r.plan.time/4))
	case a.rank < r.best.rank:
		r.best.abandon()
		r.best = a
	default:
		a.abandon()
	}
}

// noteDeleted ends the group if a member has refused the connection because the group is deleted. One is enough: it has applied the
// deletion, and no number is used again.
func (r *race) noteDeleted(err error) {
	g := r.group
	if refused := (*transport.RefusedError)(nil); g.cfg.Further != 0 && errors.As(err, &refused) && refused.Reason == transport.ReasonNoGroup {
		g.end(ErrDeleted)
		g.cfg.Deleted()
	}
}

// attach connects to a target, and has the member there attach this process.
func (r *race) attach(ctx context.Context, a *attempt) error {
	conn, err := r.group.dialer.Connect(ctx, a.to, r.plan.identity.key, r.cluster)
	if err != nil {
		return err
	}
	member := conn.Peer().Member
	if !r.claim(member) {
		conn.Close(errSameMember)
		return errSameMember
	}
	a.keep = context.AfterFunc(ctx, func() { conn.Close(context.Cause(ctx)) })
	a.link = &link{conn: conn, addr: a.to.Addr, incarnation: r.plan.identity.incarnation}
	if a.attached, err = r.group.attach(a.link); err != nil {
		conn.Close(err)
		r.disclaim(member)
		return err
	}
	switch {
	case a.attached.GetLeaderless():
		a.rank = leaderless
	case r.plan.left[member]:
		a.rank = wasLeft
	}
	return nil
}

// claim reports whether no other attempt attaches to a member: a second attachment would end the
// first.
func (r *race) claim(member uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members[member] {
		return false
	}
	r.members[member] = true
	return true
}

func (r *race) disclaim(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, member)
}
