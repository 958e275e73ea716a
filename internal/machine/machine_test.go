package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The main job, end to end: register, open, lock, queue, hand over.
func TestHandOver(t *testing.T) {
	m := New()
	inc, session := wire.ID{1}, wire.ID{2}
	seq := uint64(0)
	apply := func(c *wire.Command) wire.Result {
		seq++
		command, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: 1, Submissions: []*wire.Submission{
			{Incarnation: inc[:], Calls: []*wire.Call{{Seq: seq, Command: command}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return m.Apply(seq, 1, data)
	}
	lock := func(handle uint64) *wire.Command {
		return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: "a", Session: session[:], Handle: handle, Wait: true}}}
	}
	apply(&wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: 1, Boot: 1, Ttl: 10 * second}}})
	apply(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: session[:], Ttl: 10 * second}}})
	first := apply(lock(1)).Outcomes[0].Reply
	if first.Code != wire.Code_OK || first.Fence != 1 {
		t.Fatalf("first lock: %v", first)
	}
	queued := apply(lock(2)).Outcomes[0]
	if queued.Reply.Code != wire.Code_QUEUED || !queued.More {
		t.Fatalf("second lock: %v", queued)
	}
	out := apply(&wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: "a", Session: session[:], Handle: 1, Fence: 1}}}).Outcomes
	if len(out) != 2 || out[0].Ticket != queued.Ticket || out[0].Reply.Fence != 2 {
		t.Fatalf("hand-over: %v", out)
	}
}
