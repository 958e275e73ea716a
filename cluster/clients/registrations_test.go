package clients

import (
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// places stands for the group's limit of clients.
type places struct {
	limit int
	taken map[wire.ID]bool
}

func (p *places) config() *Handlers {
	return &Handlers{
		Occupied: func(_ core.Machine, id wire.ID) bool { return p.taken[id] },
		Free:     func(core.Machine) int { return p.limit - len(p.taken) },
	}
}

// A host that registers as many clients as it can, by way of several members, leaves places to
// other hosts, until its registrations end.
func TestRegistrations_ShareOfHost(t *testing.T) {
	for members := 1; members <= 5; members++ {
		p := &places{limit: 1200, taken: map[wire.ID]bool{}}
		all := make([]registrations, members)
		n := uint64(0)
		register := func(of *registrations, host string, tick uint64) bool {
			n++
			ok := of.admit(number(n), host, tick, nil, p.config())
			if ok {
				p.taken[number(n)] = true
			}
			return ok
		}
		for more := true; more; {
			more = false
			for i := range all {
				more = register(&all[i], "many", 1) || more
			}
		}
		if left := p.limit - len(p.taken); left < p.limit/(members+1) || left > p.limit/(members+1)+members {
			t.Errorf("%d members: %d of %d places are left", members, left, p.limit)
		}
		for i := range 50 {
			if !register(&all[i%members], fmt.Sprint("host ", i), 2) {
				t.Errorf("%d members: host %d is refused", members, i)
			}
		}
		clear(p.taken) // all have expired
		later := uint64(2 + registeringTicks)
		for range 2000 / looked {
			register(&all[0], "many", later)
		}
		if len(all[0].byID) > 2000/looked+looked || len(all[0].byID) != len(all[0].queue) {
			t.Errorf("%d members: %d registrations are kept, %d of them queued", members, len(all[0].byID), len(all[0].queue))
		}
	}
}

// A registration that is on its way counts, and one that is known already is not counted twice.
func TestRegistrations_OnTheirWay(t *testing.T) {
	p := &places{limit: 10, taken: map[wire.ID]bool{}}
	var r registrations
	for n := range uint64(10) {
		if first, again := r.admit(number(n), "h", 1, nil, p.config()), r.admit(number(n), "h", 1, nil, p.config()); !first || !again {
			t.Fatal(n)
		}
	}
	if r.admit(number(10), "h", registeringTicks, nil, p.config()) {
		t.Error("one more than there are places")
	}
	if !r.admit(number(3), "h", registeringTicks, nil, p.config()) {
		t.Error("one that is known is refused")
	}
	p.taken[number(77)] = true
	if !r.admit(number(77), "h", registeringTicks, nil, p.config()) {
		t.Error("one that has its place, by way of another member, is refused")
	}
	if !r.admit(number(11), "h", 1+registeringTicks, nil, p.config()) || len(r.byID) != 2 {
		t.Errorf("%d registrations are counted", len(r.byID))
	}
}

// A client that submits something, waits until that counts no more, and registers then, counts as
// one that registers at once: else one host could take all registrations of the group.
func TestRegistrations_LongAfterFirstSubmission(t *testing.T) {
	m := serving(t, nil)
	to := m.dial(t)
	m.on(func() {
		p := &places{limit: 40, taken: map[wire.ID]bool{}}
		m.cfg.Handlers = *p.config()
		var all []*conn
		submit := func(c *conn) (refused bool) {
			m.submit(c, &wire.Submission{Calls: []*wire.Call{{Seq: 1}}})
			defer func() { c.notices = nil }()
			return len(c.notices) > 0
		}
		for n := range uint64(p.limit) {
			all = append(all, &conn{server: m.Server, conn: to, incarnation: number(n)})
			if submit(all[n]) {
				t.Errorf("client %d is refused, and none is registered", n)
			}
			m.ticks += registeringTicks
		}
		for n, c := range all {
			if !submit(c) {
				p.taken[number(uint64(n))] = true
			}
		}
		if len(p.taken) > p.limit/2 {
			t.Errorf("one host has registered %d clients of %d", len(p.taken), p.limit)
		}
		m.touched = nil
	})
}
