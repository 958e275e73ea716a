package conclave_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A span of a call on a further group has the group's name, of a node and of a client. One of the default group has none,
// also by a handle with its name.
func TestTracer_FurtherGroup(t *testing.T) {
	g, recorders := startTraced(t, 1)
	n, ctx := g.Nodes[0], grouptest.Bounded(t)
	tenant, err := n.CreateGroup(ctx, "tenant", conclave.GroupConfig{})
	grouptest.Must(t, err)
	remote := &recorder{name: "client", queued: make(chan conclave.SpanEvent, 16)}
	c := grouptest.Dial(t, &conclave.ClientConfig{Tracer: remote}, n)
	for name, row := range map[string]struct {
		of    *conclave.Group
		by    *recorder
		node  conclave.MemberID
		group string
		err   error
	}{
		"node":            {tenant, recorders[0], g.ID(0), "tenant", nil},
		"default":         {n.Group, recorders[0], g.ID(0), "", nil},
		"default by name": {n.WithGroup(n.Status().Group), recorders[0], g.ID(0), "", nil},
		"none":            {n.WithGroup("none"), recorders[0], g.ID(0), "none", conclave.ErrGroupNotFound},
		"client":          {c.WithGroup("tenant"), remote, processIn(t, c.WithGroup("tenant")), "tenant", nil},
		"client default":  {c.Group, remote, c.ID(), "", nil},
		"client none":     {c.WithGroup("none"), remote, c.ID(), "none", conclave.ErrGroupNotFound},
	} {
		for call, of := range groupCalls(ctx, row.of, name) {
			err := of()
			s := row.by.last(t)
			if !errors.Is(err, row.err) || !errors.Is(s.err, row.err) || s.op.Group != row.group || s.op.Node != row.node || s.ends != 1 {
				t.Errorf("%s, %s: %v, and its span is %+v", name, call, err, s)
			}
		}
	}
}

// processIn returns this process's ID in a group: that of a client differs from group to group.
func processIn(t *testing.T, g *conclave.Group) conclave.MemberID {
	t.Helper()
	l := g.FencedLock("any")
	grouptest.MustLock(t, l)
	defer grouptest.MustUnlock(t, l)
	info, err := l.Info(grouptest.Bounded(t))
	grouptest.Must(t, err)
	return info.Node
}

// groupCalls are calls of each kind of handle that is traced.
func groupCalls(ctx context.Context, g *conclave.Group, key string) map[string]func() error {
	none := func(context.Context, conclave.Fence) error { return nil }
	return map[string]func() error{
		"lock": func() error { return g.FencedLock("lock").Do(ctx, none) },
		"share": func() error {
			l := g.RWLock("share")
			if _, err := l.RLock(ctx); err != nil {
				return err
			}
			return l.RUnlock(ctx)
		},
		"set": func() error { return g.LockSet([]string{"a", "b"}).Do(ctx, none) },
		"permits": func() error {
			p, err := g.Semaphore("permits", 2).Acquire(ctx, 1)
			if err != nil {
				return err
			}
			return p.Release(ctx)
		},
		"election": func() error { return g.Election("election").Run(ctx, nil, none) },
		"key":      func() error { _, err := g.KV().Put(ctx, "key", nil); return err },
		"job":      func() error { return g.Job("job").Once(ctx, key, none) },
	}
}

// A tracer that panics in a call on one group is not called for another one either.
func TestTracer_PanicEndsTracesOfAllGroups(t *testing.T) {
	log := new(bytes.Buffer)
	tracer := &faultyTracer{at: "Begin", fault: func() { panic("a fault of the application") }}
	g := grouptest.Start(t, 1, tracedBy(0, tracer, log))
	n := g.Nodes[0]
	tenant, err := n.CreateGroup(grouptest.Bounded(t), "tenant", conclave.GroupConfig{})
	grouptest.Must(t, err)
	for _, of := range []*conclave.Group{tenant, n.Group, n.WithGroup("none")} {
		_, _ = of.FencedLock("x").TryLock(t.Context())
	}
	g.Close(0)
	if logged := strings.Count(log.String(), "the tracer panicked"); tracer.calls != 1 || logged != 1 {
		t.Errorf("%d calls of the tracer, and its panic is logged %d times", tracer.calls, logged)
	}
}
