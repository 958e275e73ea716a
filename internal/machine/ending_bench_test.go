package machine

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// BenchmarkSessionEnd ends a session with many holds of a kind, and then their
// lock-delay: how long does the longest entry take, and how long all of them?
//
//	go test -run '^$' -bench SessionEnd -benchtime 1x ./internal/machine
func BenchmarkSessionEnd(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func(i uint64) *wire.Command
	}{
		{"permit", func(uint64) *wire.Command {
			return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: "x", Session: id(1), Limit: MaxPermits, Permits: 1}}}
		}},
		{"lock", func(i uint64) *wire.Command { return lockCommand(fmt.Sprintf("orders/%07d", i), wire.ID{1}, i) }},
		{"key", func(i uint64) *wire.Command {
			return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{
				{Kind: wire.KeyOp_ACQUIRE, Key: fmt.Sprintf("orders/%07d", i), Session: id(1)},
			}}}}
		}},
	} {
		for _, n := range []uint64{200_000, 400_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				for b.Loop() {
					benchmarkSessionEnd(b, n, kind.make)
				}
				b.ReportMetric(0, "ns/op") // says nothing here
			})
		}
	}
}

func benchmarkSessionEnd(b *testing.B, n uint64, command func(uint64) *wire.Command) {
	d := newDriver(b)
	d.do(openCommand(wire.ID{1}, 10*second, 15*second))
	for i := uint64(0); i < n; i += 1000 {
		commands := make([]*wire.Command, 1000)
		for j := range commands {
			commands[j] = command(i + uint64(j))
		}
		d.want(wire.Code_OK, d.do(commands...))
	}
	d.do() // the floor lets the outcomes go
	for _, deadline := range []struct {
		of string
		at int64
	}{{"end", 10 * second}, {"delay", 25 * second}} {
		var longest, sum time.Duration
		entries := 0
		for more := true; more; entries++ {
			d.index++
			data := must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: deadline.at}))
			start := time.Now()
			d.m.Apply(d.index, 1, data)
			took := time.Since(start)
			longest, sum = max(longest, took), sum+took
			at, ok := d.m.NextDeadline()
			more = ok && at <= d.m.Now()
		}
		b.ReportMetric(float64(longest.Microseconds())/1000, deadline.of+"-longest-ms")
		b.ReportMetric(float64(sum.Microseconds())/1000, deadline.of+"-all-ms")
		b.ReportMetric(float64(entries), deadline.of+"-entries")
	}
}
