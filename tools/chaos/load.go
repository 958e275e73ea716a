//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// load is what the clients of one member do in one phase.
type load struct {
	node    *conclave.Node
	process *memberProcess
	phase   string
	history *recorder
	file    io.Closer
	halt    context.CancelFunc
	halted  <-chan struct{} // closed by halt
	clients sync.WaitGroup
	dialed  chan struct{}    // closed when remote is set, or cannot be
	remote  *conclave.Client // nil: the load has stopped before
}

// access is a group as a client uses it: by the node of its process, or by a connection to any member.
type access interface {
	FencedLock(name string, opts ...conclave.LockOption) *conclave.FencedLock
	RWLock(name string, opts ...conclave.LockOption) *conclave.RWLock
	LockSet(names []string, opts ...conclave.LockOption) *conclave.LockSet
	Semaphore(name string, limit int) *conclave.Semaphore
	Shards(name string, count int, opts ...conclave.ShardsOption) *conclave.Shards
	Job(name string, opts ...conclave.JobOption) *conclave.Job
	KV() *conclave.KV
}

// Names are used for one epoch, so that each has a history that can be searched.
// A call may last longer.
const epoch = 5 * time.Second

// How many names of a kind are in use at a time.
const (
	plainLocks     = 12
	reentrantLocks = 5
	lingeringLocks = 5
	semaphores     = 5
	keys           = 8
	longLocks      = 5 // fewer than clients that hold them
	sharedLocks    = 3 // likewise
)

// clientsPerMember is how many clients a member runs: each kind has its share.
const clientsPerMember = 22

// client is one goroutine with a loop of its own.
type client struct {
	*load
	from     origin
	access   access       // the group of the present turn
	history  groupHistory // likewise
	name     string
	random   *rand.Rand
	resource *resourceClient
	interval time.Duration // between operations, on average
	made     int           // holds and values
}

func startLoad(node *conclave.Node, m *memberProcess, phase string, file io.WriteCloser) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{
		node: node, process: m, phase: phase, file: file, halt: cancel, halted: ctx.Done(),
		history: &recorder{file: file, fail: m.fail}, dialed: make(chan struct{}),
	}
	l.clients.Go(func() { l.dial(ctx) })
	for i := range m.clients {
		c := &client{
			load: l, from: node, name: fmt.Sprintf("%s.%d", m.name, i), random: rand.New(rand.NewPCG(m.seed, uint64(i))),
			resource: newResourceClient(m.resource),
			interval: time.Duration(float64(time.Second) * float64(m.clients) / m.rate),
		}
		remote := i%2 == 1
		l.clients.Go(func() {
			if remote {
				if <-l.dialed; l.remote == nil {
					return
				}
				c.from = l.remote
			}
			c.loop(ctx, c.turn(i))
		})
	}
	l.startWorkers(ctx)
	return l
}

// turn returns what the client with this number does.
func (c *client) turn(number int) func() int {
	switch number {
	case 3, 4:
		return c.lingeringTurn
	case 5, 6:
		return c.reentrantTurn
	case 7, 8:
		return c.semaphoreTurn
	case 9, 10, 11:
		return c.keyTurn
	case 12, 13:
		return c.longTurn
	case 14, 15:
		return c.sharedTurn
	case 16, 17:
		return c.setTurn
	case 18, 19:
		return c.jobTurn
	case 20, 21:
		return c.ownerTurn
	case clientsPerMember, clientsPerMember + 1:
		return c.briefTurn
	}
	return c.lockTurn
}

// dial connects half of the clients to the group as those that are no members do: to any
// member, which may be another one than that of this process.
func (l *load) dial(ctx context.Context) {
	defer close(l.dialed)
	c, err := conclave.Dial(ctx, &conclave.ClientConfig{
		Name: l.process.config.Name + "-client", Addresses: l.process.config.Join, Insecure: true, SessionTTL: sessionTTL, Logger: l.process.config.Logger,
	})
	if err != nil {
		l.process.config.Logger.Info("not connected as a client", "error", err)
		return
	}
	l.remote = c
}

// stop blocks until the clients have finished their calls, which have limits.
func (l *load) stop() {
	l.halt()
	l.clients.Wait()
	if l.remote != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		_ = l.remote.Close(ctx) // as a program that ends
	}
	_ = l.file.Close() // each line was written
}

// loop takes turns at the client's rate. A turn returns how many operations it made.
func (c *client) loop(ctx context.Context, turn func() int) {
	defer c.resource.close()
	next := time.Now().Add(time.Duration(c.random.Int64N(int64(c.interval) + 1)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.node.Done():
			return
		case <-c.from.Done():
			return
		case <-time.After(time.Until(next)):
		}
		c.enterAny()
		n := turn()
		next = next.Add(time.Duration(n) * c.interval)
		if late := time.Now().Add(-c.interval); next.Before(late) {
			next = late // what a fault delayed is not made up for
		}
	}
}

// object returns a name of the current epoch. The same names are used in all groups. Each has its share of them, so that clients meet.
func (c *client) object(kind string, count int) string {
	groups := len(c.process.groups)
	count = (count + groups - 1) / groups
	return fmt.Sprintf("%s/%s/%d/%d", c.phase, kind, now()/int64(epoch), c.random.IntN(count))
}

// label returns a name for a hold or a value that no other has.
func (c *client) label() string {
	c.made++
	return fmt.Sprintf("%s.%d", c.name, c.made)
}

// rest waits for a time, until ctx is done, or until the load is to stop: the phase is not to be longer for that.
func (c *client) rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-c.halted:
	case <-time.After(d):
	}
}

func (c *client) chance(percent int) bool { return c.random.IntN(100) < percent }

// within returns a context for one call.
func (c *client) within(low, high time.Duration) (context.Context, context.CancelFunc) {
	d := low + time.Duration(c.random.Int64N(int64(high-low)))
	return context.WithTimeout(context.Background(), d)
}

// asks calls the group and records the call and its return. f returns what the group
// answered, as the record of the return, and the error.
func (c *client) asks(call record, f func() (record, error)) (record, error) {
	began := now()
	id := c.history.call(call)
	r, err := f()
	return c.answered(call.Op, id, began, r, err), err
}

// answered records the return of a call.
func (c *client) answered(op string, id uint64, began int64, r record, err error) record {
	r.Result = classify(op, err)
	if err != nil {
		r.Error = err.Error()
	}
	c.history.returned(id, r)
	switch r.Result {
	case resultOK, resultRefused, resultAbsent, resultClosed:
		c.process.progress.made(c.history.group, began)
	case resultFailed, resultUnknown, resultNoGroup:
		c.backOff(err)
	}
	return r
}

// backOff waits before the next call if this one failed at once.
func (c *client) backOff(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		return
	}
	select {
	case <-c.node.Done():
	case <-time.After(100*time.Millisecond + time.Duration(c.random.Int64N(int64(200*time.Millisecond)))):
	}
}

// classify returns the result of an operation by its error.
func classify(op string, err error) string {
	is := func(target error) bool { return errors.Is(err, target) }
	changes := true // without an undo in the background
	switch op {
	case opLock, opTry, opRLock, opTryRLock, opAcquire, opGet, opOwner, opRun, opCreate:
		changes = false
	}
	switch {
	case err == nil:
		return resultOK
	case is(conclave.ErrGroupNotFound):
		return resultNoGroup
	case is(conclave.ErrKeyNotFound):
		return resultAbsent
	case is(conclave.ErrShardMoved):
		return resultMoved
	case is(conclave.ErrJobDone):
		return resultClosed
	case is(conclave.ErrHoldExpired):
		return resultExpired
	case is(conclave.ErrLockOwnershipLost):
		return resultLost
	case is(conclave.ErrNotHeld):
		return resultNotHeld
	case changes && is(conclave.ErrUnknown):
		return resultUnknown
	case is(conclave.ErrLocked), is(conclave.ErrLockDelay), is(conclave.ErrAcquireLimitReached):
		return resultRefused
	case !changes, is(conclave.ErrUnavailable), is(conclave.ErrBusy), is(conclave.ErrInvalid), is(conclave.ErrTooLarge):
		return resultFailed
	}
	return resultUnknown
}
