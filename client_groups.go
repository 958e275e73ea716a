package conclave

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/survey"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// WithGroup returns a handle to a further group, as [Node.WithGroup] does. The first call on it that waits for the group connects the client to a
// member for that group, and registers the client there: a client has a connection for each group that it uses, and its share of a host's connections
// counts each. A group in which it has had no call and no session for minutes it leaves, and the next call connects and registers it again; of a
// deletion it learns by that call. Reads with [Stale] need the connection alone. ErrBusy with 32,768 clients in that group.
func (c *Client) WithGroup(name string) *Group {
	if name == c.cfg.Group {
		return c.Group
	}
	return c.groups.door(name).group
}

// CreateGroup has a member create a further group, unless there is one of that name, and returns a handle to it, as [Node.CreateGroup] does. It
// blocks until the group has registered this client, or ctx is done. Errors as there, and with ReadOnly ErrInvalid; ErrUnknown also if the connection to
// the member was lost and another one refuses.
func (c *Client) CreateGroup(ctx context.Context, name string, cfg GroupConfig) (*Group, error) {
	g, err := c.createGroup(ctx, name, cfg)
	return g, fault("create group", name, err)
}

func (c *Client) createGroup(ctx context.Context, name string, cfg GroupConfig) (*Group, error) {
	if err := mayCreate(name, cfg); err != nil {
		return nil, err
	}
	if name == c.cfg.Group {
		return c.Group, c.client.Usable()
	}
	answer, err := c.ask(ctx, c.remote, request{kind: kindCreateGroup, body: []byte(name), repeat: true})
	if err != nil {
		return nil, err
	}
	var number uint32
	if err := json.Unmarshal(answer, &number); err != nil {
		return nil, err
	}
	f := c.groups.numbered(name, number)
	if err := f.reachNumber(ctx, number); err != nil {
		return nil, fmt.Errorf("%w: the group is created: %w", ErrUnknown, cmp.Or(contextError(ctx), convert(err)))
	}
	return f.group, nil
}

// DeleteGroup has a member delete a further group permanently, as [Node.DeleteGroup] does. It blocks until that member has removed it, or
// ctx is done. Errors as there, and with ReadOnly ErrInvalid; ErrUnknown also if the connection to the member was lost and another one refuses: the first may
// still delete the group.
func (c *Client) DeleteGroup(ctx context.Context, name string, opts ...DeleteGroupOption) error {
	return fault("delete group", name, c.deleteGroup(ctx, name, forced(opts)))
}

func (c *Client) deleteGroup(ctx context.Context, name string, force bool) error {
	switch {
	case name == c.cfg.Group:
		return errNotDeleted
	case c.cfg.ReadOnly:
		return errReadOnly
	}
	number, err := findGroup(ctx, c.Group, name, false)
	if err != nil {
		return err
	}
	body, _ := json.Marshal(deleteBody{number, force}) // a number and a bool: never fails
	_, err = c.ask(ctx, c.remote, request{kind: kindDeleteGroup, body: body, repeat: true})
	if err != nil && !errors.Is(convert(err), ErrGroupNotFound) { // that is so after an earlier attempt, too
		return err
	}
	c.groups.deleted(name, number)
	return nil
}

// Groups lists the groups, as [Node.Groups] does, with what the member knows of each that the client is connected to. It blocks until the
// member has answered, or ctx is done.
func (c *Client) Groups(ctx context.Context) iter.Seq2[GroupInfo, error] {
	return func(yield func(GroupInfo, error) bool) {
		var all []GroupInfo
		answer, err := c.ask(ctx, c.remote, request{kind: kindGroups, repeat: true, harmless: true})
		if err == nil {
			err = json.Unmarshal(answer, &all)
		}
		if err != nil {
			yield(GroupInfo{}, fault("list groups", "", err))
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// clientGroups is the further groups as a client uses them.
type clientGroups struct {
	owner *Client
	calls *budget.Budget // what Limits.CallBytes bounds in each

	routines sync.WaitGroup // no more begin once closed is set

	mu      sync.Mutex
	handles handles[remoteGroup]    // guarded by mu
	used    map[uint32]*remoteGroup // guarded by mu; those that are connected, or were to be, by number; without those that were left
	closed  bool                    // guarded by mu: the client shuts down
}

func newClientGroups(c *Client) *clientGroups {
	return &clientGroups{owner: c, calls: tickets.NewBudget(c.cfg.Limits.CallBytes), handles: newHandles[remoteGroup](), used: make(map[uint32]*remoteGroup)}
}

// remoteGroup is a further group as a client uses it.
type remoteGroup struct {
	owner   *Client
	name    string
	group   *Group // the handle
	client  *client.Client
	door    furtherDoor
	number  uint32          // guarded by clientGroups.mu; 0: none yet
	use     groupUse        // guarded by clientGroups.mu
	last    *attempt        // guarded by clientGroups.mu; to reach the group; nil: none
	reached bool            // guarded by clientGroups.mu; an attempt has succeeded, so the handle belongs to the group of that number
	found   uint32          // guarded by clientGroups.mu; the largest number that was found by a read that is not stale
	deleted context.Context // done when the group is deleted
	delete  context.CancelFunc
}

// attempt is one to connect to a further group, and to be registered there. It lasts until the group has answered, is deleted, or the
// client has learned of a later group of the name.
type attempt struct {
	remote  *remote.Group
	deleted bool          // guarded by clientGroups.mu: the group is
	left    bool          // guarded by clientGroups.mu: it has succeeded, and the client has left the group since
	done    chan struct{} // closed when it has succeeded, or failed
	err     error         // set before done is closed
}

// errSuperseded: the handle stands for a later group by now, which another attempt is to reach.
var errSuperseded = errors.New("a later group of the name was found")

// door returns the group of that name.
func (g *clientGroups) door(name string) *remoteGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handles.get(name, g.newGroup)
}

// numbered returns the group of that name and number. Of two of the name, the one with the smaller number has been deleted.
func (g *clientGroups) numbered(name string, number uint32) *remoteGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.handles.get(name, g.newGroup)
	switch {
	case f.number == number, !f.reached && f.number < number:
		return f
	case f.number > number: // the answer is late
		f = g.newGroup(name)
		f.delete()
		return f
	}
	g.end(f) // else its number would be free for another handle, by a stale read, and nothing would end the connection any more
	return g.handles.get(name, g.newGroup)
}

func (g *clientGroups) newGroup(name string) *remoteGroup {
	c := g.owner
	f := &remoteGroup{owner: c, name: name}
	f.deleted, f.delete = context.WithCancel(context.Background())
	cfg := c.clientConfig(name)
	cfg.Enter, cfg.Idle, cfg.Beside, cfg.Logger = f.enter, f.idle, c.client, ofGroup(c.log, name)
	f.client = client.New(cfg)
	f.door.defaults = func() client.Group { return c.remote }
	f.client.Connect(&f.door, func(attempt uint32, ttl time.Duration) *wire.Command {
		return f.door.use().(*remote.Group).Registration(attempt, ttl)
	})
	f.group = &Group{client: f.client, calls: newCalls(), jobs: survey.NewJobs(nil), readOnly: c.readOnly, admin: remoteAdmin{f}}
	f.group.tracing = c.tracing.of(name, func() MemberID { return MemberID(f.door.Process()) })
	return f
}

// reach blocks until this client is registered in the group, or ctx is done. For a stale read a connection is enough: the group may have no quorum to
// register the client.
func (f *remoteGroup) reach(ctx context.Context, stale bool) error {
	g := f.owner.groups
	g.mu.Lock()
	known, serves := f.number, f.last != nil && f.last.serves() && (f.reached || stale)
	g.mu.Unlock()
	if serves {
		return nil
	}
	number, err := findGroup(ctx, f.owner.Group, f.name, stale)
	if client.IsKind(err, client.NoGroup) {
		g.deleted(f.name, known) // and none that was found since then
	}
	if err != nil {
		return err
	}
	if stale {
		a, err := g.attempt(f, number)
		if err != nil {
			return err
		}
		if a.remote.AwaitMember(ctx) == nil {
			return nil
		}
	} else {
		g.found(f, number)
	}
	return f.reachNumber(ctx, number)
}

// found notes the number that a read has found that is not stale.
func (g *clientGroups) found(f *remoteGroup, number uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.found = max(f.found, number)
	if f.last != nil && f.last.serves() && f.found == f.number {
		f.reached = true
	}
}

// reachNumber is reach for the group of that number, or a later one.
func (f *remoteGroup) reachNumber(ctx context.Context, number uint32) error {
	for {
		a, err := f.owner.groups.attempt(f, number)
		if err != nil {
			return err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return &client.Fault{Kind: client.Unavailable, Detail: a.remote.Unreachable(), Cause: client.ContextError(ctx)}
		}
		if !errors.Is(a.err, errSuperseded) {
			return a.err
		}
	}
}

// attempt returns the attempt to reach a group, and begins one if the last has failed, or is to an earlier group of the name.
func (g *clientGroups) attempt(f *remoteGroup, number uint32) (*attempt, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, &client.Fault{Kind: client.Closed, Cause: remote.ErrClosed}
	case f.reached && f.number < number:
		g.end(f)
		return nil, noGroup()
	case f.deleted.Err() != nil:
		return nil, noGroup()
	case f.last != nil && !f.last.failed() && !f.last.left && number <= f.number:
		return f.last, nil
	}
	number = max(number, f.number) // an answer that is late has that of an earlier group
	cfg := g.owner.remoteConfig(f.client)
	cfg.Budget = g.calls
	cfg.Members, cfg.Logger = g.owner.remote.Members, ofGroup(g.owner.log, f.name)
	cfg.Further, cfg.Cluster, cfg.Deleted = number, g.owner.remote.Cluster(), func() { g.deleted(f.name, number) }
	r, err := remote.New(cfg)
	if err != nil {
		return nil, err
	}
	if g.used[f.number] == f {
		delete(g.used, f.number)
	}
	f.number, g.used[number] = number, f
	a, before := &attempt{remote: r, done: make(chan struct{})}, f.last
	f.last = a
	g.routines.Go(func() {
		if before != nil { // one registration of the client at a time
			before.remote.Close(remote.ErrDeleted)
			<-before.done
		}
		f.door.open(r)
		r.Start()
		a.run(f)
	})
	return a, nil
}

func (a *attempt) failed() bool { return a.ended() && a.err != nil }

// serves reports whether the client is connected and registered. clientGroups.mu is held.
func (a *attempt) serves() bool { return a.ended() && a.err == nil && !a.left }

func (a *attempt) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// run carries out the attempt. What fails, but for the end of the client and of the group, is the group's refusal to register it.
func (a *attempt) run(f *remoteGroup) {
	err := a.remote.AwaitMember(f.deleted)
	if err == nil && !f.owner.cfg.ReadOnly {
		err = f.client.Register(f.deleted)
	}
	f.owner.groups.ended(f, a, err)
	if a.err != nil {
		a.remote.Close(a.err) // which a stale read that is under way returns
	}
}

// ended ends an attempt that has succeeded, or failed with that error.
func (g *clientGroups) ended(f *remoteGroup, a *attempt, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer close(a.done)
	a.err = err
	switch readOnly := f.owner.cfg.ReadOnly; {
	case err == nil && readOnly && f.last == a && !a.deleted && f.found != f.number:
		// A stale read alone has found the number, and no registration confirms it: the group may be deleted, and another one have its name.
		f.watchUse()
	case err == nil && (!readOnly || f.last == a && f.found == f.number):
		f.reached = true
		if a.deleted || f.last != a { // the group was reached before it was deleted
			g.end(f)
			a.err = noGroup()
			return
		}
		f.watchUse()
	case f.deleted.Err() != nil:
		a.err = noGroup()
	case f.last != a:
		a.err = errSuperseded
	case a.deleted:
		a.err = noGroup()
		if !g.closed {
			delete(g.used, f.number)
		}
	case g.closed: // the registration may be unknown then; what waits for it was not sent
		a.err = &client.Fault{Kind: client.Closed, Cause: remote.ErrClosed}
	}
}

// all returns those that are used.
func (g *clientGroups) all() (list []*remoteGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.used {
		list = append(list, f)
	}
	return list
}

// registered returns those in which this client is registered.
func (g *clientGroups) registered() (list []*remoteGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.used {
		if f.reached && f.last.serves() {
			list = append(list, f)
		}
	}
	return list
}

// close refuses the use of groups from now on.
func (g *clientGroups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, f := range g.used {
		if f.use.timer != nil {
			f.use.timer.Stop()
		}
	}
}

// stop ends the connections, after close. When it returns, nothing of the groups is reported or logged any more.
func (g *clientGroups) stop() {
	for _, f := range g.all() {
		f.last.remote.Close(remote.ErrClosed)
		f.client.Stopped(nil, true)
		f.client.Wait()
	}
	g.routines.Wait()
}
