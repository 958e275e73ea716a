package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// ceilingGroup is three members of package cluster with an empty machine: what raft, Pebble,
// the transport and the member's loop can do, without sessions, locks and the client.
type ceilingGroup struct{ members [members]*cluster.Member }

func startCeiling(ctx context.Context, dir string) (group, error) {
	listeners, addresses, err := listen(members)
	if err != nil {
		return nil, err
	}
	g := new(ceilingGroup)
	var errs [members]error
	var wg sync.WaitGroup
	for i := range members {
		cfg := ceilingConfig(fmt.Sprint("m", i), listeners[i], addresses)
		cfg.Dir = filepath.Join(dir, cfg.Name)
		wg.Go(func() { g.members[i], errs[i] = startEmpty(ctx, cfg) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// ceilingConfig has the defaults of conclave.Config.
func ceilingConfig(name string, l net.Listener, join []string) cluster.Config {
	return cluster.Config{
		Name: name, Group: "ceiling", Listener: l, Advertise: l.Addr().String(), Join: join, Expect: members, Voters: members,
		Heartbeat: 100 * time.Millisecond, Election: time.Second, Logger: slog.New(slog.DiscardHandler),
		MaxCalls: 8192, MaxCallBytes: 64 << 20,
		Commands: machine.Commands{}, LoadMachine: loadEmpty,
		FirstState: func(uint32) []wire.Change { return nil }, // the machine is empty at each level
		Callbacks: replica.Callbacks{
			Restored:      func(cluster.Machine) {},
			Changed:       func([]fact.KeyChange, []fact.LeaderChange) {},
			Ended:         func(fact.Ended) {},
			LeaderChanged: func(leader, term uint64) {},
			Woke:          func() {},
		},
	}
}

// startEmpty starts a member and registers its process, as it must before it may submit
// anything else. The registration lasts longer than any run, so it is not renewed.
func startEmpty(ctx context.Context, cfg cluster.Config) (*cluster.Member, error) {
	m, err := cluster.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := proto.CloneOf(m.Registration())
	r.Ttl = machine.MaxTTL
	register, err := proto.Marshal(&wire.Command{Op: &wire.Command_Register{Register: r}})
	if err == nil {
		err = submit(ctx, m, newCall(m.Registered), register, true)
	}
	if err != nil {
		m.Stop()
		return nil, fmt.Errorf("register: %w", err)
	}
	return m, nil
}

// call is a command whose caller waits for the outcome. Once it is answered, it can be used again.
type call struct {
	on       func(*wire.Reply) // nil: none
	answered chan error
}

func newCall(on func(*wire.Reply)) *call { return &call{on: on, answered: make(chan error, 1)} }

// Deliver implements cluster.Call.
func (c *call) Deliver(_ wire.Ticket, r *wire.Reply, _ bool) {
	if c.on != nil {
		c.on(r)
	}
	if r.GetCode() != wire.Code_OK {
		c.answered <- fmt.Errorf("refused: %v %s", r.GetCode(), r.GetDetail())
		return
	}
	c.answered <- nil
}

// Cancelled implements cluster.Call.
func (c *call) Cancelled(bool) {}

// Recheck implements cluster.Call.
func (c *call) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }

// Fail implements cluster.Call.
func (c *call) Fail(err error) { c.answered <- err }

func submit(ctx context.Context, m *cluster.Member, c *call, command []byte, urgent bool) error {
	m.Replica().Submit(len(command), func() []byte { return command }, c, urgent)
	select {
	case err := <-c.answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *ceilingGroup) leader(context.Context) (int, error) {
	for i, m := range g.members {
		if s := m.Status(); s.Leader == s.ID {
			return i, nil
		}
	}
	return 0, errors.New("no leader")
}

// ceilingLock has two commits, as a lock and an unlock have, with commands of the same size.
// The second one is urgent, as that of an unlock is.
type ceilingLock struct {
	member           *cluster.Member
	call             *call
	acquire, release []byte
}

func (g *ceilingGroup) lock(_ context.Context, member int, name string, _ bool) (lock, error) {
	session := make([]byte, len(wire.ID{}))
	acquire, err := marked(&wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: session, Handle: 1, Wait: true}}})
	if err != nil {
		return nil, err
	}
	const fence = 1_000_000 // as in a group that has run for a while
	release, err := marked(&wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: name, Session: session, Handle: 1, Fence: fence}}})
	return ceilingLock{g.members[member], newCall(nil), acquire, release}, err
}

// marked returns an encoded command with the mark in place of its first byte.
func marked(c *wire.Command) ([]byte, error) {
	b, err := proto.Marshal(c)
	if err == nil {
		b[0] = mark
	}
	return b, err
}

func (l ceilingLock) lock(ctx context.Context) error {
	return submit(ctx, l.member, l.call, l.acquire, false)
}

func (l ceilingLock) unlock(ctx context.Context) error {
	return submit(ctx, l.member, l.call, l.release, true)
}

func (g *ceilingGroup) close() {
	var wg sync.WaitGroup
	for _, m := range g.members {
		if m != nil {
			wg.Go(func() {
				m.Crash() // as conclave's members are stopped
				m.Stop()
			})
		}
	}
	wg.Wait()
}
