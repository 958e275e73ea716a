package machine

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// BenchmarkStall applies what touches most, until nothing is due: how long does the
// longest entry take, and how long all of them?
//
//	go test -run '^$' -bench Stall -benchtime 1x ./internal/machine
func BenchmarkStall(b *testing.B) {
	for _, s := range stalls {
		b.Run(s.name, func(b *testing.B) {
			stall(b, func() (*driver, *wire.Batch) {
				d := newDriver(b)
				return d, s.prepare(d)
			})
		})
	}
}

// stall applies a prepared entry, and those that follow it, and reports how long they take.
func stall(b *testing.B, prepare func() (*driver, *wire.Batch)) {
	for b.Loop() {
		d, entry := prepare()
		var longest, sum time.Duration
		entries := 0
		for more := true; more; entries++ {
			data := must(proto.Marshal(entry))
			d.index++
			start := time.Now()
			d.m.Apply(d.index, 1, data)
			took := time.Since(start)
			longest, sum = max(longest, took), sum+took
			entry = &wire.Batch{Version: wire.BatchVersion, Time: entry.Time}
			at, ok := d.m.NextDeadline()
			more = ok && at <= d.m.Now()
		}
		b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		b.ReportMetric(float64(sum.Microseconds())/1000, "all-ms")
		b.ReportMetric(float64(entries), "entries")
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}

// stalls are the entries that touch most.
var stalls = []struct {
	name    string
	prepare func(d *driver) *wire.Batch
}{
	{"sessions that expire", func(d *driver) *wire.Batch {
		d.sessions(MaxSessions, 10*second)
		return &wire.Batch{Version: wire.BatchVersion, Time: 10 * second}
	}},
	{"sessions of a process that ends", func(d *driver) *wire.Batch {
		d.sessions(MaxSessions, 10*second)
		return d.batch(deregisterCommand())
	}},
	{"sessions that a check ends", func(d *driver) *wire.Batch {
		d.do(setCheckCommand(wire.CheckState_PASSING))
		d.many(MaxSessions, func(i int) *wire.Command {
			c := openCommand(numberedID(uint64(i)), 10*second, 0)
			c.GetOpenSession().Checks = []string{"disk"}
			return c
		})
		return d.batch(setCheckCommand(wire.CheckState_CRITICAL))
	}},
	{"sessions that become unbound", func(d *driver) *wire.Batch {
		d.sessions(MaxSessions, 0)
		return d.batch(deregisterCommand())
	}},
	{"sessions of 8 processes that become unbound", func(d *driver) *wire.Batch {
		for member := range uint64(8) {
			d.as(10+member, func(p *driver) {
				p.many(MaxSessions, func(i int) *wire.Command {
					return openCommand(numberedID(member<<32|uint64(i)), 0, 0)
				})
			})
		}
		return &wire.Batch{Version: wire.BatchVersion, Time: MaxTTL}
	}},
	{"session that is attached", func(d *driver) *wire.Batch {
		d.as(2, func(p *driver) {
			p.do(openCommand(wire.ID{1}, 0, 0))
			p.many(200_000, func(i int) *wire.Command { return lockCommand(fmt.Sprintf("orders/%07d", i), wire.ID{1}, 1) })
			p.do(deregisterCommand())
		})
		return d.batch(attachCommand(wire.ID{1}))
	}},
	{"session that is attached, with elections", func(d *driver) *wire.Batch {
		d.as(2, func(p *driver) {
			p.do(openCommand(wire.ID{1}, 0, 0))
			p.many(200_000, func(i int) *wire.Command { return electionCommand(fmt.Sprintf("orders/%07d", i), wire.ID{1}) })
			p.do(deregisterCommand())
		})
		return d.batch(attachCommand(wire.ID{1}))
	}},
	{"places of a process that ends", func(d *driver) *wire.Batch {
		d.do(openCommand(wire.ID{1}, 0, 0))
		d.many(20, func(i int) *wire.Command { return lockCommand(fmt.Sprint("orders/", i), wire.ID{1}, 1) })
		d.many(MaxQueued, func(i int) *wire.Command { return lockCommand(fmt.Sprint("orders/", i%20), wire.ID{1}, 2) })
		return d.batch(deregisterCommand())
	}},
	{"all that a process may have, when it ends", func(d *driver) *wire.Batch {
		d.as(2, func(p *driver) {
			p.do(openCommand(wire.ID{200}, 0, 0))
			p.many(20, func(i int) *wire.Command { return lockCommand(fmt.Sprint("orders/", i), wire.ID{200}, 1) })
		})
		d.sessions(MaxSessions, 0)
		received := d.seq
		for i := 0; i < MaxQueued-1000; i += 1000 {
			b := d.batch(lockCommand("orders/0", wire.ID{200}, 2))
			s := b.Submissions[0]
			for j := range 999 {
				d.seq++
				s.Calls = append(s.Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(lockCommand(fmt.Sprint("orders/", j%20), wire.ID{200}, 2)))})
			}
			s.Floor = received
			d.submit(s)
		}
		d.fillWindow(received)
		b := d.batch(deregisterCommand())
		b.Submissions[0].Floor = received
		return b
	}},
	{"tickets of a process that ends", func(d *driver) *wire.Batch {
		d.do(openCommand(wire.ID{1}, 0, 0))
		for i := range 20 { // granted from the queue, and so by ticket
			acquire := func(permits uint32) *wire.Command {
				c := growthAcquire(wire.ID{1}, permits, true)
				c.GetAcquire().Name = fmt.Sprint("many/", i)
				return c
			}
			d.want(wire.Code_OK, d.do(acquire(10_000_000)))
			fence := d.m.fence()
			d.many(10_000, func(int) *wire.Command { return acquire(1) })
			d.do(&wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: fmt.Sprint("many/", i), Session: id(1), Fence: fence}}})
		}
		return d.batch(deregisterCommand())
	}},
	{"prefixes", func(d *driver) *wire.Batch {
		d.many(MaxKeys, func(i int) *wire.Command {
			return writeCommand(&wire.KeyOp{Kind: wire.KeyOp_PUT, Key: fmt.Sprintf("%02d/%06d", i%64, i)})
		})
		w := new(wire.Write)
		for i := range 64 {
			w.Ops = append(w.Ops, &wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX, Key: fmt.Sprintf("%02d/", i)})
		}
		return d.batch(&wire.Command{Op: &wire.Command_Write{Write: w}})
	}},
	{"prefix", func(d *driver) *wire.Batch {
		d.many(MaxPrefixKeys, func(i int) *wire.Command {
			return writeCommand(&wire.KeyOp{Kind: wire.KeyOp_PUT, Key: fmt.Sprintf("%06d", i)})
		})
		return d.batch(writeCommand(&wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX}))
	}},
	{"waiters of a semaphore", func(d *driver) *wire.Batch {
		d.do(openCommand(wire.ID{1}, 0, 0))
		d.want(wire.Code_OK, d.do(growthAcquire(wire.ID{1}, 10_000_000, true)))
		fence := d.m.fence()
		d.many(MaxWaiters, func(int) *wire.Command { return growthAcquire(wire.ID{1}, 1, true) })
		return d.batch(&wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: "many", Session: id(1), Fence: fence}}})
	}},
	{"waiters of a semaphore that shrinks", func(d *driver) *wire.Batch {
		d.do(openCommand(wire.ID{1}, 0, 0))
		d.want(wire.Code_OK, d.do(growthAcquire(wire.ID{1}, 10_000_000, true)))
		d.many(MaxWaiters, func(int) *wire.Command { return growthAcquire(wire.ID{1}, 2, true) })
		return d.batch(&wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "many", Limit: 1}}})
	}},
	{"outcomes that were received", func(d *driver) *wire.Batch {
		d.fillWindow(1)
		return d.batch()
	}},
	{"outcomes of a process that ends", func(d *driver) *wire.Batch {
		d.fillWindow(1)
		b := d.batch(deregisterCommand())
		b.Submissions[0].Floor = 0
		return b
	}},
}

func deregisterCommand() *wire.Command {
	return &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}}
}

// batch is an entry with the commands, which is not applied.
func (d *driver) batch(commands ...*wire.Command) *wire.Batch {
	s := &wire.Submission{Incarnation: d.inc[:], Floor: d.seq, Member: d.member(commands)}
	for _, c := range commands {
		d.seq++
		s.Calls = append(s.Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(c))})
	}
	return &wire.Batch{Version: wire.BatchVersion, Time: d.time, Submissions: []*wire.Submission{s}}
}

// sessions opens sessions of one process.
func (d *driver) sessions(n int, ttl int64) {
	d.many(n, func(i int) *wire.Command { return openCommand(numberedID(uint64(i)), ttl, 0) })
}

// as runs another process of another member.
func (d *driver) as(member uint64, do func(p *driver)) {
	p := &driver{tb: d.tb, m: d.m, disk: d.disk, inc: wire.ID{byte(member)}, index: d.index, time: d.time}
	register := registerCommand(member, MaxTTL)
	register.GetRegister().FeatureLevel = d.m.levels.agreed
	p.do(register)
	do(p)
	d.index = p.index
}

// fillWindow leaves as many outcomes stored as may be, those after the floor included.
func (d *driver) fillWindow(floor uint64) {
	for d.seq+1000 < floor+MaxInFlight {
		s := &wire.Submission{Incarnation: d.inc[:], Member: 1, Floor: floor}
		for range 1000 {
			d.seq++
			s.Calls = append(s.Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}))})
		}
		d.submit(s)
	}
}
