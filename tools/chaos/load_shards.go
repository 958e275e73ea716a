//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave"
)

// shardSet is a set of shards, on which processes work for a whole phase: shards have no epochs.
type shardSet struct {
	kind    string
	count   int
	clients bool          // also clients work on it
	settle  time.Duration // how long shards wait for a worker that has ended
}

var (
	// Shards of the mixed set go to others soon after a worker was killed.
	mixed = shardSet{kind: "mixed", count: 24, clients: true, settle: time.Second}
	// Those of the settled set wait for longer than a restart takes. A client that was killed and is back within its TTL would be a
	// further worker, so members alone work on it.
	settled = shardSet{kind: "settled", count: 20, settle: 30 * time.Second}
)

// grace is longer than the TTL: of a process that is stopped for so long the session ends before.
const grace = sessionTTL + 2*time.Second

func (s shardSet) name(phase string) string { return phase + "/shards/" + s.kind }

func (s shardSet) of(a access, phase string) *conclave.Shards {
	return a.Shards(s.name(phase), s.count, conclave.Settle(s.settle), conclave.Grace(grace))
}

// shardWorker is one worker of a set.
type shardWorker struct {
	*load
	access access
	from   origin
	group  string
	set    shardSet
	name   string
	works  atomic.Int64
}

// startWorkers has the member, and its client, work on the sets.
func (l *load) startWorkers(ctx context.Context) {
	l.clients.Go(func() { l.worker(l.node, "node", l.process.settledIn(), settled).run(ctx) })
	for _, group := range l.process.groups {
		l.clients.Go(func() { l.worker(l.node, "node", group, l.process.mixed()).run(ctx) })
		l.clients.Go(func() {
			if <-l.dialed; l.remote != nil {
				l.worker(l.remote, "client", group, l.process.mixed()).run(ctx)
			}
		})
	}
}

func (l *load) worker(from origin, kind, group string, s shardSet) *shardWorker {
	return &shardWorker{
		load: l, access: l.in(from, group), from: from, group: group, set: s, name: fmt.Sprintf("%s.%s.%s%s", l.process.name, kind, s.kind, group),
	}
}

// mixed returns the mixed set as each group has it: its share of the shards.
func (m *memberProcess) mixed() shardSet {
	s := mixed
	s.count = max(1, s.count/len(m.groups))
	return s
}

// settledIn is the group that has the settled set.
func (m *memberProcess) settledIn() string { return m.groups[len(m.groups)-1] }

// run works on the set until ctx is done.
func (w *shardWorker) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := now()
		err := w.set.of(w.access, w.phase).Run(ctx, func(ctx context.Context, shard int, f conclave.Fence) error {
			w.work(ctx, began, shard, f)
			return nil
		})
		switch {
		case errors.Is(err, conclave.ErrLimitMismatch), errors.Is(err, conclave.ErrInvalid), errors.Is(err, conclave.ErrTooLarge):
			w.process.fail(err) // all have the same count
		case errors.Is(err, conclave.ErrClosed):
			return
		}
		_ = wait(ctx, 100*time.Millisecond) // too many calls, or no quorum
	}
}

// work checks and writes until its context ends, and for a while after that: as its process does that has something to finish.
func (w *shardWorker) work(ctx context.Context, began int64, shard int, f conclave.Fence) {
	n := w.works.Add(1)
	c := &client{
		load: w.load, from: w.from, name: w.name, resource: newResourceClient(w.process.resource),
		random: rand.New(rand.NewPCG(w.process.seed, uint64(f))),
	}
	c.enter(w.group, w.access)
	defer c.resource.close()
	name, hold := fmt.Sprintf("%s/%d", w.set.name(w.phase), shard), fmt.Sprintf("%s#%d", w.name, n)
	id := c.history.since(began, record{Op: opOwn, Name: name, Hold: hold})
	c.history.returned(id, record{Result: resultOK, Fence: uint64(f)})
	h, of := contextHolder{ctx, f}, checkOf(opCheck, name, hold, f)
	for c.record(h, of) {
		c.writeAs(of)
		_ = wait(ctx, 100*time.Millisecond+time.Duration(c.random.Int64N(int64(400*time.Millisecond)))) // the check looks at ctx
		c.writeAs(of)
	}
	of.Op = opReturn
	id = c.history.call(of)
	cause := context.Cause(ctx)
	if errors.Is(cause, conclave.ErrShardMoved) {
		c.finish(of)
	}
	c.history.returned(id, record{Result: classify(opReturn, cause), Error: cause.Error()})
}

// finish writes on for a while, as may be within the grace. Few works outlast that: the resource has to refuse what they write then.
func (c *client) finish(of record) {
	rest := time.Duration(c.random.Int64N(int64(finishLimit)))
	if c.chance(2) {
		rest = grace + finishLimit
	}
	c.writeAs(of)
	c.rest(context.Background(), rest)
	c.writeAs(of)
}

// finishLimit is how long most works take to return when their shard is to move.
const finishLimit = 300 * time.Millisecond

// contextHolder is what its holder trusts until a context ends. The loss of a session ends the context by a goroutine, which
// a process needs a moment for that was stopped: so to trust takes as long.
type contextHolder struct {
	ctx   context.Context
	fence conclave.Fence
}

const noticeLimit = 100 * time.Millisecond

func (h contextHolder) Fence() (conclave.Fence, error) {
	_ = wait(h.ctx, noticeLimit)
	if h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	return h.fence, nil
}

// ownerTurn asks for the owner of a shard.
func (c *client) ownerTurn() int {
	set := c.process.mixed()
	if c.history.group == c.process.settledIn() && c.chance(50) {
		set = settled
	}
	shard := c.random.IntN(set.count)
	ctx, cancel := c.within(time.Second, 4*time.Second)
	defer cancel()
	_, _ = c.asks(record{Op: opOwner, Name: fmt.Sprintf("%s/%d", set.name(c.phase), shard)}, func() (record, error) {
		o, err := set.of(c.access, c.phase).Owner(ctx, shard)
		return record{Fence: uint64(o.Fence), Value: o.Name}, err
	}) // the history has the error
	return 1
}

// workerOf returns the worker that a hold of a shard is of.
func workerOf(hold string) string {
	worker, _, _ := strings.Cut(hold, "#")
	return worker
}

// placeOf returns the name of the member whose process has this name, which differs for each start.
func placeOf(process string) string {
	place, _, _ := strings.Cut(process, ".")
	return place
}

// shardState is what the group knows of a shard of the settled set.
type shardState struct {
	Owner  string `json:"owner,omitempty"` // "": none
	Fence  uint64 `json:"fence,omitempty"`
	Moving bool   `json:"moving,omitempty"`
}

// readShards reports the owners of the shards of the settled set.
func (m *memberProcess) readShards(node *conclave.Node, phase string) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	n, a := notice{What: isShards}, access(node.Group)
	if group := m.settledIn(); group != defaultGroup {
		a = node.WithGroup(group)
	}
	for o, err := range settled.of(a, phase).Owners(ctx) {
		if err != nil {
			n.Error = err.Error()
			break
		}
		n.Shards = append(n.Shards, shardState{Owner: o.Name, Fence: uint64(o.Fence), Moving: o.Moving})
	}
	m.say(n)
}

const readLimit = 3 * time.Second
