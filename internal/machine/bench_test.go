package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// One entry of 1,000 calls: 500 owners lock and unlock their own locks.
func BenchmarkApply(b *testing.B) {
	const owners = 500
	d := newDriver(b)
	s := wire.ID{1}
	d.do(openCommand(s, MaxTTL, 0))
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		batch := &wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{Member: 1, Incarnation: d.inc[:], Floor: d.seq}}}
		for i := range uint64(owners) {
			name := fmt.Sprint("orders/", i)
			for _, c := range []*wire.Command{lockCommand(name, s, i), unlockCommand(name, s, i, d.m.fences+i+1)} {
				d.seq++
				batch.Submissions[0].Calls = append(batch.Submissions[0].Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(c))})
			}
		}
		data := must(proto.Marshal(batch))
		d.index++
		b.StartTimer()
		r := d.m.Apply(d.index, 1, data)
		if len(r.Outcomes) != 2*owners || r.Outcomes[2*owners-1].Reply.Code != wire.Code_OK {
			b.Fatal(r.Outcomes)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*owners), "ns/call")
}

// A release with 10,000 waiters, and a new waiter in the place of the one served.
func BenchmarkRelease(b *testing.B) {
	d := newDriver(b)
	s := wire.ID{1}
	d.do(openCommand(s, MaxTTL, 0))
	for i := range uint64(10_000) {
		d.do(lockCommand("x", s, i))
	}
	handle, fence := uint64(0), uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		d.do(unlockCommand("x", s, handle, fence), lockCommand("x", s, handle))
		handle, fence = (handle+1)%10_000, fence+1
	}
}
