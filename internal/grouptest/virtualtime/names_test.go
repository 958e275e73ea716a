package virtualtime

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Processes that start in any order, and whose addresses the name gets some time later, form
// one group, though each knows only the name.
func TestService_FormsOneGroup(t *testing.T) {
	for _, n := range []int{3, 5} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(n, "/", seed), func(t *testing.T) {
				t.Parallel()
				inPods(t, n, n, func(p *pods) {
					rng := rand.New(rand.NewPCG(seed, uint64(n)))
					p.move(p.All()...)
					var starting sync.WaitGroup
					for _, i := range rng.Perm(n) {
						start, publish := time.Duration(rng.IntN(3000)), time.Duration(rng.IntN(5000))
						starting.Go(func() {
							pass(publish * time.Millisecond)
							p.publish(i)
						})
						starting.Go(func() {
							pass(start * time.Millisecond)
							node, err := p.Open(i, time.Minute)
							if err != nil {
								p.T.Error(err)
							}
							p.Nodes[i] = node
						})
					}
					starting.Wait()
					if p.T.Failed() {
						p.T.FailNow()
					}
					p.awaitVoters(n, 0)
					p.Leader()
					p.WantWorking()
				})
			})
		}
	}
}

// A name that resolves after half a minute: Open reports it until then, and the log has one
// line about it for each process.
func TestService_NameAppearsLate(t *testing.T) {
	var unresolved unresolvedLines
	inPods(t, 3, 3, func(p *pods) {
		p.move(p.All()...)
		_, err := p.Open(0, 5*time.Second)
		grouptest.WantError(p.T, err, conclave.ErrUnavailable)
		if !strings.Contains(err.Error(), "lookup "+service+": no such host") {
			p.T.Errorf("Open does not name the cause: %v", err)
		}
		published := time.Now().Add(30 * time.Second)
		time.AfterFunc(30*time.Second, func() { p.publish(p.All()...) })
		p.Start(p.All()...)
		wantBetween(p.T, "opened", time.Now(), published, published.Add(4*time.Second))
		p.WantWorking()
		if n := unresolved.Load(); n != 3 {
			p.T.Errorf("%d log lines; want 3", n)
		}
	}, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.Logger = slog.New(&unresolved)
	}))
}

// unresolvedLines counts the warnings about a name that is not resolved.
type unresolvedLines struct {
	slog.Handler
	atomic.Int64
}

func (h *unresolvedLines) Enabled(context.Context, slog.Level) bool { return true }

func (h *unresolvedLines) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Level >= slog.LevelWarn && a.Value.String() == "name not resolved" {
			h.Add(1)
		}
		return true
	})
	return nil
}

// All members are down while all addresses change. They find each other by the name alone,
// soon after it has the new addresses.
func TestService_AllMembersMoved(t *testing.T) {
	for _, late := range []time.Duration{0, 20 * time.Second} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			t.Parallel()
			inPods(t, 5, 5, func(p *pods) {
				p.form(p.All()...)
				ids := p.ids()
				p.KillAll()
				if late == 0 {
					p.withdraw(p.All()...)
				}
				p.move(p.All()...)
				began := time.Now()
				time.AfterFunc(late, func() { p.publish(p.All()...) })
				p.Start(p.All()...)
				wantBetween(p.T, "opened", time.Now(), began.Add(late), began.Add(late+15*time.Second))
				p.WantWorking()
				p.wantIDs(ids)
			})
		})
	}
}

// All members but one have moved, and no name leads to them: they find each other through
// the one that kept its address.
func TestMembers_OneKeptItsAddress(t *testing.T) {
	inPods(t, 5, 5, func(p *pods) {
		p.form(p.All()...)
		ids := p.ids()
		p.KillAll()
		p.withdraw(p.All()...)
		p.move(1, 2, 3, 4)
		began := time.Now()
		p.Start(p.All()...)
		wantBetween(p.T, "opened", time.Now(), began, began.Add(15*time.Second))
		p.WantWorking()
		p.wantIDs(ids)
	})
}

// Members that advertise names of their own are restarted at once, at other addresses, and
// their names appear only some time after their processes have started.
func TestService_NamedMembersMoved(t *testing.T) {
	inPods(t, 3, 3, func(p *pods) {
		ofPod := func(i int) string { return fmt.Sprintf("pod-%d.%s", i, service) }
		launch := func() {
			p.move(p.All()...)
			for _, i := range p.All() {
				p.Configs[i].Advertise = ofPod(i) + ":7000"
				time.AfterFunc(time.Duration(1+2*i)*time.Second, func() {
					p.publish(i)
					p.names.Add(ofPod(i), p.Configs[i].Bind)
				})
			}
			began := time.Now()
			p.Start(p.All()...)
			wantBetween(p.T, "opened", time.Now(), began.Add(3*time.Second), began.Add(15*time.Second))
		}
		launch()
		p.awaitVoters(3, 0)
		ids := p.ids()
		p.KillAll()
		p.withdraw(p.All()...)
		for _, i := range p.All() {
			p.names.Remove(ofPod(i), p.Configs[i].Bind)
		}
		launch()
		p.WantWorking()
		p.wantIDs(ids)
	})
}

// Lookups that are not answered delay neither the join of known addresses nor the search at
// other addresses.
func TestService_LookupsHang(t *testing.T) {
	var hang atomic.Bool
	inPods(t, 4, 3, func(p *pods) {
		p.form(0, 1, 2)
		hang.Store(true)
		p.KillAll()
		p.move(3)
		p.Configs[3].Join = append(p.Configs[3].Join, p.Configs[1].Bind)
		for _, members := range [][]int{{0, 1, 2}, {3}} {
			began := time.Now()
			p.Start(members...)
			wantBetween(p.T, "opened", time.Now(), began, began.Add(5*time.Second))
		}
		p.awaitVoters(3, 1)
		p.WantWorking()
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) {
		lookup := s.Lookup
		s.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if hang.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return lookup(ctx, host)
		}
	}))
}

// A process whose own name does not resolve waits, and reports that.
func TestOpen_OwnNameUnresolved(t *testing.T) {
	inPods(t, 1, 1, func(p *pods) {
		p.move(0)
		c := &p.Configs[0]
		c.Join, c.Advertise = nil, "pod-0.conclave.svc:7000"
		_, err := p.Open(0, 5*time.Second)
		grouptest.WantError(p.T, err, conclave.ErrUnavailable)
		if !strings.Contains(err.Error(), "lookup pod-0.conclave.svc: no such host") {
			p.T.Errorf("Open does not name the cause: %v", err)
		}
		time.AfterFunc(20*time.Second, func() { p.names.Add("pod-0.conclave.svc", c.Bind) })
		p.Start(0)
		p.WantWorking()
	})
}

// ids returns the members' IDs.
func (p *pods) ids() (ids []conclave.MemberID) {
	for _, i := range p.All() {
		ids = append(ids, p.ID(i))
	}
	return ids
}

// wantIDs checks that the members are the same, and no others.
func (p *pods) wantIDs(ids []conclave.MemberID) {
	p.T.Helper()
	for i, id := range p.ids() {
		if id != ids[i] {
			p.T.Errorf("member %d was %v and is %v", i, ids[i], id)
		}
	}
	p.awaitVoters(len(ids), 0)
}
