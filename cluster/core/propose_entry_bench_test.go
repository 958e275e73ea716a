package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// The leader's part of an entry of 64 renewals: from the calls to their outcomes, with a
// log in memory. The other members answer at once.
func BenchmarkEntry(b *testing.B) {
	const calls = 64
	r := newRig(b, func(cfg *Config) { cfg.MaxCalls = 2 * calls }).lead()
	submit := func(c *wire.Command) {
		data, err := proto.Marshal(c)
		if err != nil {
			b.Fatal(err)
		}
		r.Submit(data, new(quietCall), false)
	}
	commit := func() Effects {
		r.settle()
		r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
		return r.effects()
	}
	token := wire.ID{1}
	submit(&wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: 1, Boot: 1, Ttl: machine.MaxTTL, NextToken: token[:]}}})
	commit()
	b.ReportAllocs()
	for b.Loop() {
		for range calls {
			submit(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
		}
		if e := commit(); e.Callers() != calls {
			b.Fatalf("%d outcomes", e.Callers())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/command")
}
