package conclave

import (
	"cmp"
	"context"
	"io"
	"sync/atomic"
	"weak"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// furtherDoor is a client's door to a further group: to a replica, or to a connection, once there is one. Before, nothing has an effect.
type furtherDoor struct {
	to       atomic.Pointer[client.Group] // nil: none yet
	defaults func() client.Group          // the default group's door, which answers before for this process
}

func (d *furtherDoor) open(to client.Group) { d.to.Store(&to) }

func (d *furtherDoor) Submit(size int, encode func() []byte, c client.Call, urgent bool) {
	if to := d.to.Load(); to != nil {
		(*to).Submit(size, encode, c, urgent)
		return
	}
	c.Fail(noGroup())
}

func (d *furtherDoor) Cancel(c client.Call) {
	if to := d.to.Load(); to != nil {
		(*to).Cancel(c)
		return
	}
	c.Cancelled(false)
}

func (d *furtherDoor) Query(ctx context.Context, q machine.Query, opts client.QueryOptions) (any, error) {
	if to := d.to.Load(); to != nil {
		return (*to).Query(ctx, q, opts)
	}
	return nil, noGroup()
}

func (d *furtherDoor) Reregister(expired wire.ID, register func() ([]byte, client.Call)) {
	if to := d.to.Load(); to != nil {
		(*to).Reregister(expired, register)
	}
}

func (d *furtherDoor) Registered(*wire.Reply) {}

func (d *furtherDoor) Renew(size int, encode func() []byte, c client.Call) {
	if to := d.to.Load(); to != nil {
		(*to).Renew(size, encode, c)
		return
	}
	c.Fail(noGroup())
}

func (d *furtherDoor) Watch(ctx context.Context, prefix string, after uint64, yield func(fact.KeyChange) bool) error {
	if to := d.to.Load(); to != nil {
		return (*to).Watch(ctx, prefix, after, yield)
	}
	return noGroup()
}

func (d *furtherDoor) FollowShards(ctx context.Context, set string, yield func(client.ShardsUpdate) bool) error {
	if to := d.to.Load(); to != nil {
		return (*to).FollowShards(ctx, set, yield)
	}
	return noGroup()
}

func (d *furtherDoor) Observe(ctx context.Context, election string, yield func(*fact.Leader) bool) error {
	if to := d.to.Load(); to != nil {
		return (*to).Observe(ctx, election, yield)
	}
	return noGroup()
}

// use is the door for what needs none of the group's state.
func (d *furtherDoor) use() client.Group {
	if to := d.to.Load(); to != nil {
		return *to
	}
	return d.defaults()
}

func (d *furtherDoor) Process() uint64     { return d.use().Process() }
func (d *furtherDoor) Level() uint32       { return d.use().Level() }
func (d *furtherDoor) Unreachable() string { return d.use().Unreachable() }

// handles remembers further groups by name, for as long as the program has a handle to one, or the group is used.
type handles[F any] struct{ byName map[string]weak.Pointer[F] }

func newHandles[F any]() handles[F] { return handles[F]{make(map[string]weak.Pointer[F])} }

// maxIdleNames is how many names without a group are remembered before those without a handle are forgotten.
const maxIdleNames = 256

// get returns what has that name, and makes it if there is none.
func (h *handles[F]) get(name string, make func(name string) *F) *F {
	if f := h.byName[name].Value(); f != nil {
		return f
	}
	if len(h.byName) >= maxIdleNames {
		for name, f := range h.byName {
			if f.Value() == nil {
				delete(h.byName, name)
			}
		}
	}
	f := make(name)
	h.byName[name] = weak.Make(f)
	return f
}

// forget has the name stand for another group from now on, unless it does already.
func (h *handles[F]) forget(name string, f *F) {
	if h.byName[name].Value() == f {
		delete(h.byName, name)
	}
}

// remoteAdmin is what a member does for a further group that a client uses.
type remoteAdmin struct{ *remoteGroup }

func (a remoteAdmin) status(ctx context.Context) (Status, error)   { return a.owner.status(ctx) }
func (a remoteAdmin) removeMember(context.Context, MemberID) error { return errDefaultGroup }

// backUp needs no registration in the group, for which it must have a quorum.
func (a remoteAdmin) backUp(ctx context.Context, w io.Writer) error {
	number, err := findGroup(ctx, a.owner.Group, a.name, a.owner.cfg.ReadOnly)
	var to *attempt
	if err == nil {
		err = a.beginCall(ctx)
	}
	if err == nil {
		defer a.endCall()
		to, err = a.owner.groups.attempt(a.remoteGroup, number)
	}
	switch {
	case err == nil:
		return backUpFrom(ctx, to.remote, w)
	case client.IsKind(err, client.NoGroup), client.IsKind(err, client.Closed):
		return err
	}
	return incompleteError{cmp.Or(contextError(ctx), err)} // ErrUnavailable is that of a backup that is complete
}

func (a remoteAdmin) transferLeadership(ctx context.Context, to MemberID) error {
	leave, err := a.enter(ctx, false)
	if err != nil {
		return err
	}
	defer leave()
	return a.owner.transfer(ctx, a.door.use().(*remote.Group), to)
}

// findGroup returns the number of a further group. With stale it may be as the member at hand knows it, also without a quorum, if that knows the group.
func findGroup(ctx context.Context, defaults *Group, name string, stale bool) (uint32, error) {
	query := machine.GroupQuery{Name: name}
	if stale {
		v, err := client.Ask[*machine.GroupView](ctx, defaults.client, query, client.QueryOptions{Stale: true})
		if err == nil && v != nil {
			return v.Number, nil
		}
	}
	v, err := ask[*machine.GroupView](ctx, defaults, query)
	switch {
	case err != nil:
		return 0, err
	case v == nil:
		return 0, noGroup()
	}
	return v.Number, nil
}
