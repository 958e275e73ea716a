package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Few keys and few sessions, old ones and ever new ones, so that keys live many
// lives under the same sessions: the rig wants no sequencer to come true twice.
func TestSequencer_StaysStale(t *testing.T) {
	for seed := range uint64(8) {
		g, r := newGenerator(seed+1), newRig()
		r.mustApply(t, registerCommand(1, MaxTTL))
		var sessions []wire.ID
		for range 1_000 {
			if n := len(sessions); n < 3 || g.chance(3) {
				sessions = append(sessions, wire.ID{1, byte(n), byte(n >> 8)})
				r.mustApply(t, openCommand(sessions[n], MaxTTL, 0))
				continue
			}
			s := sessions[g.rand.IntN(3)]
			if g.chance(30) {
				s = sessions[len(sessions)-1]
			}
			op := &wire.KeyOp{
				Kind:    []wire.KeyOp_Kind{wire.KeyOp_ACQUIRE, wire.KeyOp_ACQUIRE, wire.KeyOp_RELEASE, wire.KeyOp_DELETE, wire.KeyOp_PUT}[g.rand.IntN(5)],
				Key:     "ab"[g.rand.IntN(2):][:1],
				Session: s[:],
			}
			if e, there := r.model.Key(op.Key); there && op.Kind == wire.KeyOp_RELEASE {
				op.Session = e.Session[:]
			}
			r.mustApply(t, &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{op}}}})
		}
	}
}

// mustApply applies one command of one incarnation as an entry.
func (r *rig) mustApply(t *testing.T, c *wire.Command) {
	t.Helper()
	inc := wire.ID{1}
	call := &wire.Call{Seq: r.index + 1, Command: must(proto.Marshal(c))}
	b := &wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{Member: 1, Incarnation: inc[:], Floor: r.index, Calls: []*wire.Call{call}}}}
	if err := r.apply(must(proto.Marshal(b))); err != nil {
		t.Fatalf("index %d: %v", r.index, err)
	}
}
