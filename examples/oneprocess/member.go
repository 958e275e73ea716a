// Package oneprocess runs the members of a group in one process, so that one
// command shows them all, and makes a member look crashed. Each has a port of its
// own, and talks to the others over TCP, as it would on a machine of its own. A
// program needs none of this: it sets Config.Bind and calls conclave.Open.
package oneprocess

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// Member is a member of the group.
type Member struct {
	*conclave.Node // nil while it does not run

	Config conclave.Config // of the node; Start fills in what concerns the network
	Addr   string          // where it runs, or ran last

	cable *cable
}

// Group returns members with these names, which do not run yet.
func Group(names ...string) (group []*Member) {
	for _, name := range names {
		group = append(group, &Member{Config: conclave.Config{Name: name}})
	}
	return group
}

// Name returns the member's name.
func (m *Member) Name() string { return m.Config.Name }

// Start opens members of a group, each on a new port. It opens them all at once,
// since Open returns only when a majority runs. After an error the caller still
// calls Close.
func Start(ctx context.Context, group []*Member, starting ...*Member) error {
	for _, m := range starting {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		m.cable = &cable{Listener: l}
		m.Addr = l.Addr().String()
	}
	var opening sync.WaitGroup
	errs := make([]error, len(starting))
	for i, m := range starting {
		cfg := m.Config
		cfg.Listener, cfg.Dial = m.cable, m.cable.Dial
		cfg.Join, cfg.Expect = others(group, m), len(group)
		opening.Go(func() { m.Node, errs[i] = conclave.Open(ctx, &cfg) })
	}
	opening.Wait()
	return errors.Join(errs...)
}

func others(group []*Member, m *Member) []string {
	var addrs []string
	for _, other := range group {
		if other != m {
			addrs = append(addrs, other.Addr)
		}
	}
	return addrs
}

// Kill ends a member as a crash of its process would: without its cable, nothing
// that Close does reaches the group. The deadline is short because there is
// nothing to wait for.
func (m *Member) Kill() {
	m.cable.unplug()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = m.Node.Close(ctx) // it reports only that the group was not reached
	m.Node = nil
}

// Close shuts a member down gracefully.
func (m *Member) Close() error {
	// Not with the context given to Open: that may be done by now, and Close
	// would have no time to release what the member holds.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := m.Node.Close(ctx)
	m.Node = nil
	return err
}

// Close closes the members that run, all at once: the last of them would wait in
// vain for a majority.
func Close(group []*Member) {
	var closing sync.WaitGroup
	for _, m := range group {
		if m.Node != nil {
			closing.Go(func() { _ = m.Close() }) // the program has shown what it wanted to
		}
	}
	closing.Wait()
}
