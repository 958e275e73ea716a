package machine

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// BenchmarkScale measures what one machine needs for much state: bytes of memory
// and of keys and values for each thing, the time to load it all, and the time
// that a renewal of all sessions takes.
//
//	go test -run '^$' -bench Scale -benchtime 1x ./internal/machine
func BenchmarkScale(b *testing.B) {
	for _, kind := range []struct {
		name string
		n    int // at most
		make func(d *driver, i uint64) *wire.Command
	}{
		{"session", MaxSessions / 2, func(_ *driver, i uint64) *wire.Command { return openCommand(numberedID(i), 10*second, 15*second) }},
		{"lock", 1_000_000, func(_ *driver, i uint64) *wire.Command {
			return lockCommand(fmt.Sprintf("orders/%07d", i), wire.ID{1}, i)
		}},
		{"permit", 1_000_000, func(_ *driver, i uint64) *wire.Command {
			return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
				Name: fmt.Sprintf("orders/%07d", i/1000), Session: id(1), Limit: 1000, Permits: 1,
			}}}
		}},
		{"key", 1_000_000, func(_ *driver, i uint64) *wire.Command {
			return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{
				{Kind: wire.KeyOp_PUT, Key: fmt.Sprintf("orders/%07d", i), Value: []byte("0123456789abcdef")},
			}}}}
		}},
	} {
		for _, n := range []int{kind.n / 10, kind.n} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) { benchmarkScale(b, uint64(n), kind.make) })
		}
	}
}

func benchmarkScale(b *testing.B, n uint64, command func(*driver, uint64) *wire.Command) {
	for b.Loop() {
		d := newDriver(b)
		d.do(openCommand(wire.ID{1}, MaxTTL, 0))
		heap, disk := heapInUse(), d.disk.size()
		const batch = 1000
		for i := uint64(0); i < n; i += batch {
			commands := make([]*wire.Command, batch)
			for j := range uint64(batch) {
				commands[j] = command(d, i+j)
			}
			for _, o := range d.do(commands...) {
				if o.Reply.Code != wire.Code_OK {
					b.Fatal(o)
				}
			}
		}
		d.do() // the floor lets the outcomes go
		b.ReportMetric(float64(d.disk.size()-disk)/float64(n), "disk-B/each")

		renewal := &wire.Submission{Member: 1, Incarnation: d.inc[:], Floor: d.seq, Calls: []*wire.Call{{
			Seq: d.seq + 1, Command: must(proto.Marshal(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})),
		}}}
		start := time.Now()
		changes := d.submit(renewal).Changes
		b.ReportMetric(float64(time.Since(start).Microseconds()), "renewal-µs")
		b.ReportMetric(float64(len(changes)), "renewal-keys")

		start = time.Now()
		loaded, err := Load(d.disk.pairs())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "load-s")
		// Only the loaded machine: the driver's disk is a map of the test's.
		d.m, d.disk = nil, nil
		b.ReportMetric(float64(heapInUse()-heap)/float64(n), "heap-B/each")
		b.ReportMetric(0, "ns/op") // says nothing here
		runtime.KeepAlive(loaded)
	}
}

func (d disk) size() (bytes int) {
	for k, v := range d {
		bytes += len(k) + len(v)
	}
	return bytes
}

func numberedID(i uint64) wire.ID {
	return wire.ID(binary.BigEndian.AppendUint64([]byte("session-"), i))
}

func id(b byte) []byte { return []byte{b, 15: 0} }

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
