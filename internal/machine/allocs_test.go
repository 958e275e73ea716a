package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A lock that is granted at once and released is what an application does most. Neither its request nor anything that
// other kinds of requests need is allocated for it: 3 allocations for a call, of which the outcome is one.
func TestApply_Allocations(t *testing.T) {
	const pairs, runs = 100, 10
	d, s := newDriver(t), wire.ID{1}
	d.do(openCommand(s, MaxTTL, 0))
	var entries [][]byte
	fence := d.m.fences
	for range runs + 1 {
		submission := &wire.Submission{Member: 1, Incarnation: d.inc[:], Floor: d.seq}
		for i := range uint64(pairs) {
			fence++
			name := fmt.Sprint("orders/", i)
			for _, c := range []*wire.Command{lockCommand(name, s, i), unlockCommand(name, s, i, fence)} {
				d.seq++
				submission.Calls = append(submission.Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(c))})
			}
		}
		entries = append(entries, must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{submission}})))
	}
	allocs := testing.AllocsPerRun(runs, func() {
		d.index++
		r := d.m.Apply(d.index, 1, entries[0])
		entries = entries[1:]
		for _, o := range r.Outcomes {
			if o.Reply.Code != wire.Code_OK {
				t.Fatal(o.Reply)
			}
		}
	})
	if each := allocs / (2 * pairs); each > 3.3 {
		t.Errorf("%.2f allocations for a call", each)
	} else {
		t.Logf("%.2f", each)
	}
}
