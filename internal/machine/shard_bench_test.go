package machine

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// shardStall is an entry that touches many shards.
type shardStall struct {
	name    string
	prepare func(d *driver) *wire.Batch
}

// crowdStalls are those of a session with as many workers as there may be.
var crowdStalls = []shardStall{
	{"a session with 1,024 workers in each of 15 sets releases a shard of each", func(d *driver) *wire.Batch {
		d.crowd(15, "w0")
		var all []*wire.Command
		for s := range 15 {
			all = append(all, d.releaseAll(fmt.Sprint("set", s), "w0"))
		}
		return d.batch(all...)
	}},
	{"14,000 joins of it are refused", func(d *driver) *wire.Batch {
		d.crowd(15, "w0")
		var all []*wire.Command
		for i := range uint64(14_000) {
			all = append(all, joinCommand("set0", MaxShards, "w0", 10_000+i, 1, 0))
		}
		return d.batch(all...)
	}},
	{"the counts of 15 sets with 1,024 workers each change", func(d *driver) *wire.Batch {
		d.crowd(15, "w0")
		var all []*wire.Command
		for s := range 15 {
			all = append(all, resizeShardsCommand(fmt.Sprint("set", s), MaxShards-1))
		}
		return d.batch(all...)
	}},
}

// BenchmarkStallShards is BenchmarkStall for the largest sets of shards.
//
//	go test -run '^$' -bench StallShards -benchtime 1x ./internal/machine
func BenchmarkStallShards(b *testing.B) {
	for _, s := range append(crowdStalls, []shardStall{
		{"the first worker joins", func(d *driver) *wire.Batch { return d.batch(joinCommand("set0", MaxShards, "w0", 1, 1, 0)) }},
		{"a worker joins 64", func(d *driver) *wire.Batch {
			d.employ(1, 64)
			return d.batch(joinCommand("set0", MaxShards, "w64", 1, 1, 0))
		}},
		{"one of 64 ends", func(d *driver) *wire.Batch {
			d.employ(1, 64)
			return d.batch(closeCommand(makeID("w0")))
		}},
		{"the only worker ends, and another joins", func(d *driver) *wire.Batch {
			d.employ(1, 1)
			return d.batch(joinCommand("set0", MaxShards, "w1", 1, 1, 0), closeCommand(makeID("w0")))
		}},
		{"one of 64 leaves and releases all", func(d *driver) *wire.Batch {
			d.employ(1, 64)
			return d.batch(leaveCommand("set0", "w0", 1), d.releaseAll("set0", "w0"))
		}},
		{"the only worker of 10 sets ends", func(d *driver) *wire.Batch {
			d.employ(10, 1)
			return d.batch(closeCommand(makeID("w0")))
		}},
		{"1,024 workers join one of 10 sets", func(d *driver) *wire.Batch {
			d.employ(10, 1)
			var all []*wire.Command
			for i := range MaxShardWorkers - 1 {
				all = append(all, joinCommand("set0", MaxShards, "w1", uint64(i), 1+uint32(i)%7, 0))
			}
			return d.batch(all...)
		}},
	}...) {
		b.Run(s.name, func(b *testing.B) {
			stall(b, func() (*driver, *wire.Batch) {
				d := newDriverAt(b, wire.LevelShards)
				for i := range 66 {
					c := openCommand(makeID(fmt.Sprint("w", i)), MaxTTL, 0)
					c.GetOpenSession().Name = fmt.Sprint("w", i)
					d.do(c)
				}
				return d, s.prepare(d)
			})
		})
	}
}

// crowd has a session join sets of MaxShards with MaxShardWorkers handles each, until all is granted.
func (d *driver) crowd(sets int, session string) {
	for s := range sets {
		var all []*wire.Command
		for w := range uint64(MaxShardWorkers) {
			all = append(all, joinCommand(fmt.Sprint("set", s), MaxShards, session, w+1, 1, 0))
		}
		d.do(all...)
	}
	d.employ(0, 0)
}

// employ has workers join sets of MaxShards, until all is granted.
func (d *driver) employ(sets, workers int) {
	for s := range sets {
		var all []*wire.Command
		for w := range workers {
			all = append(all, joinCommand(fmt.Sprint("set", s), MaxShards, fmt.Sprint("w", w), 1, 1, 0))
		}
		d.do(all...)
	}
	for at, ok := d.m.NextDeadline(); ok && at <= d.time; at, ok = d.m.NextDeadline() {
		d.do()
	}
}

// releaseAll is the command by which a worker releases up to 1,024 of its shards.
func (d *driver) releaseAll(set, session string) *wire.Command {
	id := makeID(session)
	c := &wire.ReleaseShards{Set: set, Session: id[:], Handle: 1}
	w := d.m.shardSets.byName[set].find(d.m.sessions[id], 1)
	for i, sh := range d.m.shardSets.byName[set].shards {
		if sh.owner == w && len(c.Shards) < MaxReleasedShards {
			c.Shards, c.Fences = append(c.Shards, uint32(i)), append(c.Fences, sh.fence)
		}
	}
	return &wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: c}}
}

// BenchmarkMemoryShards measures what 10 sets of 4,096 shards take, with 64 workers.
//
//	go test -run '^$' -bench MemoryShards -benchtime 1x ./internal/machine
func BenchmarkMemoryShards(b *testing.B) {
	for b.Loop() {
		d := newDriverAt(b, wire.LevelShards)
		for i := range 64 {
			d.do(openCommand(makeID(fmt.Sprint("w", i)), MaxTTL, 0))
		}
		var before, after runtime.MemStats
		d.disk = disk{}
		runtime.GC()
		runtime.ReadMemStats(&before)
		d.employ(10, 64)
		d.disk = disk{}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		runtime.KeepAlive(d)
	}
	b.ReportMetric(0, "ns/op")
}
