package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// keeper keeps the locks that handles of one lease acquire with a time to linger: it
// begins a tenure for a name when a handle asks for the lock, and has later ones join it.
type keeper struct {
	lease *Lease

	mu    sync.Mutex       // may be held when that of a handle or of the lease is acquired
	names map[string]*kept // guarded by mu; with a tenure, or the release of one under way

	used atomic.Bool // there was a tenure
}

// kept is what a keeper has under one name.
type kept struct {
	open          *tenure         // the one that admits newcomers; nil: none
	tenures       []*tenure       // that are not over, open included
	order         order           // of the releases
	shared        *sharedTenure   // as open, in shared mode
	sharedTenures []*sharedTenure // as tenures
	wanted        time.Time       // by another owner, at the last recall
	tidying       bool            // once the abstention is over
}

// abstention is for how long nothing lingers after a recall. An owner that comes back soon,
// as one that polls does, would meet a tenure each time.
const abstention = time.Second

// abstains reports whether the process may not keep an idle lock at present.
func (n *kept) abstains() bool { return !n.wanted.IsZero() && time.Since(n.wanted) < abstention }

// errAnotherTenure: this tenure does not serve the request. It has no fences left, or the
// handle has the lock by another call, or has released it since. So it begins again.
var errAnotherTenure = errors.New("not in this tenure")

// maxKeptRequests bounds the queue of a tenure, as the group bounds that of a lock.
const maxKeptRequests = machine.MaxWaiters

// acquire acquires a lock for a handle, which has own already, or nil. It blocks as
// Lock.Acquire does.
func (k *keeper) acquire(ctx context.Context, l *Lock, own *Hold, wait bool, tr *Trace) (fence uint64, err error) {
	if own != nil && l.reentrant {
		return l.reenter(own)
	}
	for {
		k.mu.Lock()
		n := k.of(l.name)
		t := n.open
		if t != nil && t.owner == l && l.reentrant {
			k.mu.Unlock()
			return 0, errAnotherTenure // the handle has it, so this is a re-entry
		}
		if t == nil || !wait && !t.Kept() {
			// A request that waits queues behind what is being released.
			if settled := n.order.wait(); settled != nil && !wait {
				k.mu.Unlock()
				select {
				case <-settled:
					continue
				case <-k.lease.done:
					return 0, errLeaseEnded
				case <-ctx.Done():
					return 0, contextFault(Unavailable, ctx)
				}
			}
			t = k.request(l.name, n, wait)
		}
		refused := t.refusal(wait)
		if refused != nil {
			k.mu.Unlock()
			return 0, refused
		}
		p := newPlace(keptRequest{lock: l, result: make(chan acquired, 1), places: tr.places()})
		t.Join(p)
		step := t.next()
		t.joined(p.Owner)
		k.mu.Unlock()
		t.submit(step)
		fence, err = t.await(ctx, p, tr)
		if l.reentrant && isCode(err, wire.Code_LOCKED) && l.Holds() > 0 {
			err = errAnotherTenure // another call of the handle has got the lock
		}
		return fence, err
	}
}

// take acquires the lock for a handle if a tenure keeps it and it is free.
func (k *keeper) take(l *Lock) (fence uint64, ok bool) {
	k.mu.Lock()
	n := k.names[l.name]
	if n == nil || n.open == nil {
		k.mu.Unlock()
		return 0, false
	}
	t := n.open
	if fence, ok = t.Take(); ok {
		ok = t.grant(l, fence) == nil
	}
	step := t.next()
	k.mu.Unlock()
	t.submit(step)
	return fence, ok
}

// of returns what is kept under a name. k.mu is held.
func (k *keeper) of(name string) *kept {
	n := k.names[name]
	if n == nil {
		if k.names == nil {
			k.names = make(map[string]*kept)
		}
		n = new(kept)
		k.names[name] = n
	}
	return n
}

// keptTenure is what a tenure is in either mode: a hold of this process, which it has requested from the group.
type keptTenure struct {
	keeper *keeper
	name   string
	number uint64             // of its handle
	cancel context.CancelFunc // of its request
	asked  *acquisition       // the request; its mu is not taken while keeper.mu is held
	ended  chan struct{}      // closed when the request has a result
	err    error              // valid once ended is closed: why it failed
}

// begin begins to request the lock for a new tenure, which request does. k.mu is held.
func (t *keptTenure) begin(k *keeper, name string, as target, request func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	t.keeper, t.name, t.number, t.cancel, t.ended = k, name, k.lease.client.handles.Add(1), cancel, make(chan struct{})
	t.asked = newAcquisition(as, k.lease)
	k.used.Store(true)
	k.lease.client.requests.start(func() { request(ctx) })
}

// run submits the request and waits for its result.
func (t *keptTenure) run(ctx context.Context, wait, shared bool, queued func(*wire.Reply)) error {
	_, t.err = t.asked.run(ctx, &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: t.name, Session: t.keeper.lease.id[:], Handle: t.number, Wait: wait, Lingering: true, Shared: shared,
	}}}, &Trace{Queued: queued})
	t.cancel()
	close(t.ended)
	return t.err
}

// interrupted returns the error of a caller that leaves for that reason before the tenure was granted. The last one withdraws
// the request.
func (t *keptTenure) interrupted(ctx context.Context, last bool, why error) error {
	if last {
		t.cancel()
		<-t.ended
	}
	if ctx.Err() == nil {
		return why
	}
	if last && IsKind(t.err, Unavailable) || !last && !t.asked.answered() {
		return t.keeper.lease.client.unavailable(ctx)
	}
	return why
}

// takeBack implements target. A tenure that was granted goes on without the request.
func (t *keptTenure) takeBack() taken { return taken{} }

func (t *keptTenure) semaphore() string { return "" }

func (t *keptTenure) job() string { return "" }

// undoing implements target.
func (t *keptTenure) undoing() (done func()) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	return t.keeper.undoing(t.name)
}

// releaseCommand implements target.
func (t *keptTenure) releaseCommand(lease *Lease, g grant) *wire.Command {
	return unlockCommand(t.name, lease, t.number, g, false)
}

// request begins to request the lock for a new tenure. Newcomers join one whose request
// waits; another one may be refused, and admits them once it was granted. k.mu is held.
func (k *keeper) request(name string, n *kept, wait bool) *tenure {
	t := new(tenure)
	n.tenures = append(n.tenures, t)
	if wait {
		n.open = t
	}
	t.begin(k, name, t, func(ctx context.Context) { t.request(ctx, wait) })
	return t
}

// undoing notes that a tenure is being released in the group, until done is called. k.mu is held.
func (k *keeper) undoing(name string) (done func()) {
	settled := k.of(name).order.begin()
	return func() {
		settled()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tidy(name)
	}
}

// over takes out a tenure that is over. k.mu is held.
func (k *keeper) over(t *tenure) {
	n := k.names[t.name]
	n.tenures = slices.DeleteFunc(n.tenures, func(o *tenure) bool { return o == t })
	k.tidy(t.name)
}

// tidy drops a name under which nothing is left. k.mu is held.
func (k *keeper) tidy(name string) {
	n := k.names[name]
	if n == nil || len(n.tenures) > 0 || len(n.sharedTenures) > 0 || n.tidying || n.order.wait() != nil {
		return
	}
	if n.abstains() {
		n.tidying = true
		time.AfterFunc(abstention, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			n.tidying = false
			k.tidy(name)
		})
		return
	}
	delete(k.names, name)
}

// stop stops the timers once the lease has ended.
func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.names { // order: each is stopped
		for _, t := range n.tenures {
			if t.timer != nil {
				t.timer.Stop()
			}
		}
		for _, t := range n.sharedTenures {
			if t.timer != nil {
				t.timer.Stop()
			}
		}
	}
}

// requests is the goroutines that request tenures.
type requests struct {
	running sync.WaitGroup

	mu     sync.Mutex
	waited bool // guarded by mu; wait was called
}

// start starts a request. One that comes after wait ends at once, as its lease
// has ended.
func (r *requests) start(request func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waited {
		go request()
	} else {
		r.running.Go(request)
	}
}

func (r *requests) wait() {
	r.mu.Lock()
	r.waited = true
	r.mu.Unlock()
	r.running.Wait()
}
