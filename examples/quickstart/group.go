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

// sessionTTL is how long a holder may be silent. The default is 10 s; here it
// is short so that the story is.
const sessionTTL = 3 * time.Second

// member is one member of the group: what stays when its node is gone.
type member struct {
	name string
	dir  string
	addr string
	node *conclave.Node // nil while it does not run
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

// start opens members, each in its directory and on a port of its own. All of
// them at once: Open returns when a majority is there.
func (g *group) start(ctx context.Context, members ...*member) error {
	listeners := make(map[*member]net.Listener)
	for _, m := range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listeners[m] = l
		m.addr = l.Addr().String()
	}
	var opening sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		cfg := &conclave.Config{
			Name:       m.name,
			Dir:        m.dir,
			Listener:   listeners[m], // elsewhere one gives Bind an address
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

// kill ends a member without farewell, as a crash of its process would. Close
// says farewell for as long as its context allows, so one that has ended makes
// it none.
func (m *member) kill() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.node.Close(ended) // it could only tell that there was no farewell
	m.node = nil
}

// roles names the members by what they do now: who leads, and the two others.
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
		return nil, nil, nil, fmt.Errorf("%s knows of no leader: %+v", g.members[0].name, status)
	}
	return leader, followers[0], followers[1], nil
}

// close ends what still runs. Their locks do not matter any more, so nobody
// takes leave.
func (g *group) close() {
	for _, m := range g.members {
		if m.node != nil {
			m.kill()
		}
	}
}
