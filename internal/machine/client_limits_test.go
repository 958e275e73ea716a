package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// registerClients registers the clients from one number to another, 1,000 in an entry.
func (d *driver) registerClients(from, to uint64, ttl, until int64) {
	d.tb.Helper()
	for n := from; n < to; n += 1000 {
		var all []*wire.Submission
		for i := n; i < min(to, n+1000); i++ {
			all = append(all, ofClient(i, 1, registerClientCommand(i, ttl, until)))
		}
		for _, o := range d.submit(all...).Outcomes {
			if o.Reply.Code != wire.Code_OK {
				d.tb.Fatal(o)
			}
		}
	}
}

// What clients take up to their limit is counted with what ended and could return, and apart
// from the processes of members.
func TestLimit_Clients(t *testing.T) {
	d := atClientLevel(t)
	const ttl = 10 * second
	d.registerClients(0, MaxClients, ttl, ttl/2)
	next := func() *wire.Reply {
		return d.submit(ofClient(MaxClients, 1, registerClientCommand(MaxClients, ttl, d.time+second))).Outcomes[0].Reply
	}
	if r := next(); r.Code != wire.Code_BUSY {
		t.Errorf("registered beyond the limit: %v", r)
	}
	if n := d.m.Counts().Clients; n != MaxClients {
		t.Errorf("%d clients are counted", n)
	}
	other := wire.ID{2}
	if r := d.submit(&wire.Submission{Member: 2, Incarnation: other[:], Calls: []*wire.Call{{Seq: 1, Command: must(proto.Marshal(&wire.Command{
		Op: &wire.Command_Register{Register: &wire.Register{Member: 2, Boot: 1, Ttl: MinTTL, NextToken: other[:], FeatureLevel: wire.LevelClient}},
	}))}}}).Outcomes[0].Reply; r.Code != wire.Code_OK {
		t.Errorf("a member is refused: %v", r)
	}
	if r := d.submit(ofClient(0, 2, deregisterCommand())).Outcomes[0].Reply; r.Code != wire.Code_OK {
		t.Fatal(r)
	}
	if r := next(); r.Code != wire.Code_BUSY {
		t.Errorf("registered in place of one that could return: %v", r)
	}
	d.time = ttl / 2
	if r := next(); r.Code != wire.Code_OK {
		t.Errorf("refused although one has ended: %v", r)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// From level 6 on all clients may start again within a minute, and no more often: each that ended
// leaves a tombstone for a minute.
func TestLimit_ClientTombstones(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	const ttl = 2 * second
	expire := func() {
		t.Helper()
		d.time += ttl
		for due, ok := d.m.NextDeadline(); ok && due <= d.time; due, ok = d.m.NextDeadline() {
			d.submit()
		}
	}
	next := func(n uint64) wire.Code {
		return d.submit(ofClient(n, 1, registerClientCommand(n, ttl, d.time+second))).Outcomes[0].Reply.Code
	}
	d.registerClients(0, MaxClients-1, ttl, second)
	expire()
	d.registerClients(MaxClients, 2*MaxClients, ttl, d.time+second)
	if code := next(2 * MaxClients); code != wire.Code_BUSY {
		t.Errorf("beyond the clients: %v", code)
	}
	expire()
	if n := len(d.m.tombstones.byID); n != 2*MaxClients-1 {
		t.Errorf("%d tombstones", n)
	}
	if code := next(2 * MaxClients); code != wire.Code_BUSY {
		t.Errorf("beyond the tombstones: %v", code)
	}
	d.time = MaxRegistering + ttl
	d.submit()
	expire()
	if code := next(0); code != wire.Code_OK {
		t.Errorf("a minute after the end: %v", code)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

func TestLimit_ClientSessions(t *testing.T) {
	d := atClientLevel(t)
	d.registerClients(1, 2, MaxClientTTL, second)
	var s *wire.Submission
	open := func(from, to uint64) wire.Code {
		s = ofClient(1, 0, deregisterCommand())
		s.Calls = nil
		for i := from; i < to; i++ {
			s.Calls = append(s.Calls, &wire.Call{Seq: i + 2, Command: must(proto.Marshal(openCommand(numberedID(i), 0, 0)))})
		}
		out := d.submit(s).Outcomes
		return out[len(out)-1].Reply.Code
	}
	if code := open(0, MaxClientSessions); code != wire.Code_OK {
		t.Fatal(code)
	}
	if code := open(MaxClientSessions, MaxClientSessions+1); code != wire.Code_BUSY {
		t.Errorf("the session beyond the limit: %v", code)
	}
	d.want(wire.Code_OK, d.do(openCommand(wire.ID{9}, 0, 0)))
	leaves := &driver{tb: t, m: d.m, disk: d.disk, inc: wire.ID{3}, index: d.index}
	c := registerCommand(3, MaxTTL)
	c.GetRegister().FeatureLevel = wire.LevelClient
	leaves.do(c)
	leaves.want(wire.Code_OK, leaves.do(openCommand(wire.ID{10}, 0, 0)))
	leaves.do(deregisterCommand())
	d.index = leaves.index
	attach := func(seq uint64) wire.Code {
		return d.submit(ofClient(1, seq, attachCommand(wire.ID{10}))).Outcomes[0].Reply.Code
	}
	if code := attach(9_000); code != wire.Code_BUSY {
		t.Errorf("attached beyond the limit: %v", code)
	}
	d.want(wire.Code_OK, d.do(closeCommand(numberedID(3))))
	if code := attach(9_001); code != wire.Code_OK {
		t.Errorf("not attached below the limit: %v", code)
	}
}

// The work of clients grows with the logarithm of their number, and their end comes in
// portions.
func TestGrowth_Clients(t *testing.T) {
	const n = 10_000
	d := atClientLevel(t)
	measure := func(what string, touches uint64, do func()) {
		t.Helper()
		before := d.m.visits.Total()
		do()
		if visits := d.m.visits.Total() - before; visits > touches*allowedVisits(n) {
			t.Errorf("%s looks at %d elements, and may at %d", what, visits, touches*allowedVisits(n))
		}
	}
	measure("registering", n, func() { d.registerClients(0, n, 10*second, second) })
	measure("one more", 1, func() { d.registerClients(n, n+1, 10*second, second) })
	for i := range uint64(n / 1000) {
		measure("opening a session", 1, func() { d.submit(ofClient(i, 2, openCommand(numberedID(i), 5*second, 0))) })
	}
	d.time = 4 * second
	renewal := new(wire.RenewClients)
	for i := range uint64(1000) {
		id := wire.ClientIncarnation(clientKey(i))
		renewal.Incarnations = append(renewal.Incarnations, id[:])
	}
	measure("renewing", 1000, func() { d.do(&wire.Command{Op: &wire.Command_RenewClients{RenewClients: renewal}}) })
	d.time = 14 * second
	entries := 0
	measure("expiring", 2*n, func() {
		for due, ok := d.m.NextDeadline(); ok && due <= d.time; due, ok = d.m.NextDeadline() {
			before := d.m.registry.clients
			d.submit()
			entries++
			if ended := before - d.m.registry.clients; ended > MaxReleased {
				t.Errorf("one entry ends %d clients", ended)
			}
		}
	})
	if got := len(d.m.clients) + len(d.m.sessions) + len(d.m.tombstones.byID) + d.m.registry.clients; got > 0 || entries < 3 {
		t.Errorf("after %d entries %d things of clients are left", entries, got)
	}
	if len(d.disk) > 6 { // m, M, i, t
		t.Errorf("on disk: %d keys", len(d.disk))
	}
}

// BenchmarkClients measures what one machine needs for as many clients as it may have: memory
// and disk, registration, the renewal of 4,096 of them by one command, the first entry of a
// term, and their end by time.
//
//	go test -run '^$' -bench Clients -benchtime 1x ./internal/machine
func BenchmarkClients(b *testing.B) {
	for b.Loop() {
		d := atClientLevel(b)
		heap, disk := heapInUse(), d.disk.size()
		start := b.Elapsed()
		d.registerClients(0, MaxClients, 10*second, second)
		lap := func(unit string) {
			b.ReportMetric(float64((b.Elapsed()-start).Microseconds())/1000, unit)
			start = b.Elapsed()
		}
		lap("register-ms")
		b.ReportMetric(float64(heapInUse()-heap-uint64(d.disk.size()-disk))/MaxClients, "heap-B/each")
		renewal := new(wire.RenewClients)
		for i := range uint64(MaxRenewed) {
			id := wire.ClientIncarnation(clientKey(i))
			renewal.Incarnations = append(renewal.Incarnations, id[:])
		}
		start = b.Elapsed()
		d.do(&wire.Command{Op: &wire.Command_RenewClients{RenewClients: renewal}})
		lap("renewal-ms")
		d.index++
		d.m.Apply(d.index, 2, nil)
		lap("term-ms")
		d.time = 30 * second
		for due, ok := d.m.NextDeadline(); ok && due <= d.time; due, ok = d.m.NextDeadline() {
			d.submit()
		}
		lap("expiry-ms")
		b.ReportMetric(0, "ns/op") // says nothing here
	}
}
