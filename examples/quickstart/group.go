package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// sessionTTL is how long a holder may go without renewing its session. The
// default is 10 s; here it is short so that the story is.
const sessionTTL = 3 * time.Second

// member is one member of the group: what remains when its node is closed.
type member struct {
	name  string
	dir   string
	addr  string
	node  *conclave.Node // nil while it does not run
	cable *cable         // of the node
}

type group struct {
	members []*member
}

func newGroup(dir string) *group {
	g := &group{}
	for _, name := range []string{"anna", "ben", "clara"} {
		g.members = append(g.members, &member{name: name, dir: filepath.Join(dir, name)})
	}
	return g
}

// start opens members, each with its own directory and port. It opens them all
// at once, since Open returns only when a majority runs.
func (g *group) start(ctx context.Context, members ...*member) error {
	for _, m := range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		m.cable = &cable{Listener: l}
		m.addr = l.Addr().String()
	}
	var opening sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		cfg := &conclave.Config{
			Name:       m.name,
			Dir:        m.dir,
			Listener:   m.cable, // a program would set Bind instead
			Dial:       m.cable.Dial,
			Join:       g.others(m),
			Expect:     len(g.members),
			SessionTTL: sessionTTL,
		}
		opening.Go(func() { m.node, errs[i] = conclave.Open(ctx, cfg) })
	}
	opening.Wait()
	return errors.Join(errs...)
}

func (g *group) others(m *member) []string {
	var addrs []string
	for _, other := range g.members {
		if other != m {
			addrs = append(addrs, other.addr)
		}
	}
	return addrs
}

// kill ends a member as a crash of its process would: without its cable, nothing
// that Close does reaches the group. The deadline is short because there is
// nothing to wait for.
func (m *member) kill() {
	m.cable.unplug()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = m.node.Close(ctx) // it reports only that the group was not reached
	m.node = nil
}

// close shuts a member down gracefully.
func (m *member) close() error {
	// Not with the context given to Open: that may be done by now, and Close
	// would have no time to release what the member holds.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := m.node.Close(ctx)
	m.node = nil
	return err
}

// roles returns the leader and the two other members.
func (g *group) roles() (leader, second, third *member, err error) {
	status := g.members[0].node.Status()
	var followers []*member
	for _, m := range g.members {
		if m.node.Status().ID == status.Leader {
			leader = m
		} else {
			followers = append(followers, m)
		}
	}
	if leader == nil || len(followers) != 2 {
		return nil, nil, nil, fmt.Errorf("%s knows no leader: %+v", g.members[0].name, status)
	}
	return leader, followers[0], followers[1], nil
}

// close closes the members that run, all at once: the last of them would wait in
// vain for a majority.
func (g *group) close() {
	var closing sync.WaitGroup
	for _, m := range g.members {
		if m.node != nil {
			closing.Go(func() { _ = m.close() }) // the story is over, and its directory is removed
		}
	}
	closing.Wait()
}
