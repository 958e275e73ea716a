package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// One entry of 1,000 calls: a session releases the 500 permits that it has acquired in the entry before, of 16 semaphores
// that others use as well, and acquires as many, below the level at which permits have numbers and from it on.
func BenchmarkPermits(b *testing.B) {
	for _, level := range []uint32{6, 7} {
		for _, name := range []string{"", "worker"} {
			b.Run(fmt.Sprintf("level=%d/name=%s", level, name), func(b *testing.B) { benchmarkPermits(b, level, name) })
		}
	}
}

func benchmarkPermits(b *testing.B, level uint32, name string) {
	const semaphores, calls = 16, 500
	if level > wire.FeatureLevel {
		b.Skip("not supported")
	}
	d := newDriverAt(b, level)
	s := wire.ID{1}
	open := openCommand(s, MaxTTL, 0)
	open.GetOpenSession().Name = name
	d.do(open)
	for i := range semaphores {
		d.line(wire.Code_OK, "open other ttl=none")
		d.line(wire.Code_OK, "acquire workers/%d other limit=1024 permits=3", i)
	}
	held := make([]uint64, 0, calls) // by the entry before
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		batch := &wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{Member: 1, Incarnation: d.inc[:], Floor: d.seq}}}
		for i := range calls {
			of := fmt.Sprint("workers/", i%semaphores)
			if len(held) > 0 {
				d.add(batch, &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: of, Session: s[:], Fence: held[i]}}})
			}
			d.add(batch, &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: of, Session: s[:], Limit: 1024, Permits: 1}}})
		}
		data := must(proto.Marshal(batch))
		d.index++
		b.StartTimer()
		r := d.m.Apply(d.index, 1, data)
		b.StopTimer()
		held = held[:0]
		for _, o := range r.Outcomes {
			if o.Reply.Code != wire.Code_OK {
				b.Fatal(o)
			}
			if o.Reply.Holds > 0 {
				held = append(held, o.Reply.Fence)
			}
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*calls), "ns/call")
}

// add adds a call to the first submission of a batch.
func (d *driver) add(batch *wire.Batch, c *wire.Command) {
	d.seq++
	batch.Submissions[0].Calls = append(batch.Submissions[0].Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(c))})
}
