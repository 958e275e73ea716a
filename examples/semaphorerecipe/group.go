package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// member is a running member of the group.
type member struct {
	*conclave.Node
	cable *cable
}

// openGroup opens members in memory, all at once, since Open returns only when a
// majority runs. After an error the caller still closes the members.
func openGroup(ctx context.Context, names ...string) ([]*member, error) {
	var members []*member
	var addrs []string
	for range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		members = append(members, &member{cable: &cable{Listener: l}})
		addrs = append(addrs, l.Addr().String())
	}
	errs := make([]error, len(names))
	var opening sync.WaitGroup
	for i, m := range members {
		cfg := &conclave.Config{Name: names[i], Listener: m.cable, Dial: m.cable.Dial, Join: addrs, Expect: len(names)}
		opening.Go(func() { m.Node, errs[i] = conclave.Open(ctx, cfg) })
	}
	opening.Wait()
	return members, errors.Join(errs...)
}

// kill ends a member as a crash of its process would: without its cable, nothing
// that Close does reaches the group. The deadline is short because there is
// nothing to wait for.
func (m *member) kill() {
	m.cable.unplug()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = m.Close(ctx) // it reports only that the group was not reached
}

// closeAll closes the members that run, all at once: the last of them would wait
// in vain for a majority. A second Close of a killed member does nothing.
func closeAll(members []*member) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var closing sync.WaitGroup
	for _, m := range members {
		if m.Node != nil {
			closing.Go(func() { _ = m.Close(ctx) }) // the story is over
		}
	}
	closing.Wait()
}
