package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Under faults of gossip, network and disks no two groups share a founder; after the
// faults fewer founders are left than could form another group.
func TestForming_RandomFaults(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 3 + int(seed%3)
			v := newFounders(t, seed, n, 2+int(seed%2))
			v.faulty = true
			for range 60 {
				v.fault()
				v.check()
			}
			v.settle()
			if n := v.ungrouped(); n >= v.expect {
				t.Errorf("%d founders without a group, %d can form one", n, v.expect)
			}
		})
	}
}

// Three founders form one group, after whichever save one of them crashes.
func TestForming_CrashAtEachSave(t *testing.T) {
	for n := range 3 {
		for saves := 1; saves <= 4; saves++ {
			t.Run(fmt.Sprintf("founder %d, save %d", n, saves), func(t *testing.T) {
				v := newFounders(t, 7, 3, 3)
				v.founders[n].saves = saves
				for range 3 {
					for _, f := range v.founders {
						if f.up {
							f.gossips(true)
							f.attempt()
						}
					}
				}
				v.settle()
				if v.ungrouped() > 0 || len(v.clusters) != 3 {
					t.Errorf("%d founders without a group", v.ungrouped())
				}
				for _, f := range v.founders {
					if conf := f.raftLog; !conf.Bootstrapped() {
						t.Errorf("founder %d has no log", f.n)
					}
				}
			})
		}
	}
}

func proposal(cluster byte, voters uint32, founders ...uint64) *wire.Proposal {
	p := &wire.Proposal{Cluster: bytes.Repeat([]byte{cluster}, 16), Voters: voters}
	for _, id := range founders {
		p.Founders = append(p.Founders, &wire.Founder{Member: id})
	}
	return p
}

// The answers to one request after the other.
func TestForm_Answers(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	id := f.identity.member
	good := proposal(1, 2, id, id+1)
	for _, step := range []struct {
		name            string
		p               *wire.Proposal
		accepted, final bool
	}{
		{"no cluster", &wire.Proposal{Founders: good.GetFounders(), Voters: 2}, false, false},
		{"too few founders", proposal(2, 1, id), false, true},
		{"too many founders", proposal(3, 2, id, id+1, id+2), false, true},
		{"founders out of order", proposal(4, 2, id+1, id), false, true},
		{"one founder twice", proposal(5, 2, id, id), false, true},
		{"a group of others", proposal(6, 2, id+1, id+2), false, true},
		{"no voters", proposal(7, 0, id, id+1), false, true},
		{"more voters than founders", proposal(8, 3, id, id+1), false, true},
		{"in order", good, true, false},
		{"the same again", good, true, false},
		{"the same cluster with other founders", proposal(1, 2, id, id+2), false, false},
		{"another one", proposal(9, 2, id, id+1), false, true},
		{"that one again", proposal(9, 2, id, id+1), false, true},
		{"one refused before", proposal(2, 2, id, id+1), false, true},
	} {
		reply := f.Form(&wire.FormRequest{Proposal: step.p})
		if reply.GetAccepted() != step.accepted || reply.GetFinal() != step.final || reply.GetMember() != id {
			t.Errorf("%s: %v", step.name, reply)
		}
		f.crash()
		f.start() // every answer holds after a restart
	}
	if err := f.revoke(good); err != nil {
		t.Fatal(err)
	}
	// It has no proposal now, and would accept any of these if it had not refused them,
	// or dropped the first, finally: others rely on that.
	for cluster := byte(1); cluster <= 9; cluster++ {
		reply := f.Form(&wire.FormRequest{Proposal: proposal(cluster, 2, id, id+1)})
		if reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("proposal %d, refused before: %v", cluster, reply)
		}
	}
	other := proposal(10, 2, id, id+1)
	if reply := f.Form(&wire.FormRequest{Proposal: other}); !reply.GetAccepted() {
		t.Errorf("another one after the drop: %v", reply)
	}
	if err := f.bootstrap(other); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*wire.Proposal{good, proposal(11, 2, id, id+1)} {
		if reply := f.Form(&wire.FormRequest{Proposal: p}); reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("a member of a group: %v", reply)
		}
	}
	if reply := f.Form(&wire.FormRequest{Proposal: other}); !reply.GetAccepted() {
		t.Errorf("its own group: %v", reply)
	}
}

// A member remembers a limited number of refusals; those beyond it are not final.
func TestForm_RefusalsLimited(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	for i := range maxRefused + 10 {
		p := proposal(0, 1, 1)
		p.Cluster[0], p.Cluster[1] = byte(i), 1
		reply := f.Form(&wire.FormRequest{Proposal: p})
		if reply.GetAccepted() || reply.GetFinal() != (i < maxRefused) {
			t.Fatalf("refusal %d: %v", i, reply)
		}
	}
}

// Founders with different Voters form no group, and each names both sides.
func TestForming_ContradictingVoters(t *testing.T) {
	v := newFounders(t, 1, 3, 3)
	v.founders[2].cfg.Voters = 5
	for range 3 {
		for _, f := range v.founders {
			f.gossips(true)
			f.attempt()
		}
	}
	if v.ungrouped() != 3 {
		t.Fatalf("%d founders without a group", v.ungrouped())
	}
	for i, want := range []string{
		"founder-2) expects 5 voters, this member 3", "founder-2) expects 5 voters, this member 3", "founder-0) expects 3 voters, this member 5",
	} {
		if why := v.founders[i].waitReason(); !strings.Contains(why.Error(), want) {
			t.Errorf("founder %d: %v, want %q", i, why, want)
		}
	}
	f := v.founders[0]
	p := proposal(1, 2, f.identity.member, f.identity.member+1, f.identity.member+2)
	if reply := f.Form(&wire.FormRequest{Proposal: p}); !strings.Contains(reply.GetRefusal(), "the proposal has 2 voters, this member expects 3") {
		t.Errorf("the proposal is answered by %v", reply)
	}
}

// A member that waits for its group logs why, every ten seconds.
func TestForming_WaitIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		cfg := Config{
			Name: "waiting", Group: "test", Listener: newIdleListener(), Advertise: "127.0.0.1:1", Expect: 3, Voters: 3,
			Heartbeat: 100 * time.Millisecond, Election: time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		_, err := Start(ctx, cfg)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "found 1 of 3 founders") {
			t.Fatalf("Start: %v", err)
		}
		line := `level=INFO msg="waiting to form or find the group" reason="found 1 of 3 founders`
		if n := strings.Count(out.String(), line); n != 3 {
			t.Errorf("%d lines in 35 s:\n%s", n, out.String())
		}
	})
}

// idleListener is a listener to which no connection comes.
type idleListener struct {
	once   sync.Once
	closed chan struct{}
}

func newIdleListener() *idleListener { return &idleListener{closed: make(chan struct{})} }

func (l *idleListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *idleListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *idleListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
