package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A Write has some bytes, can find 16,384 keys by a prefix, and delete them in vain: what the Writes of one entry find is
// bounded, or those of one client would keep every member from all else for minutes.
func TestLimit_KeysOfPrefixesInEntry(t *testing.T) {
	prefix := &wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX}
	failing := []*wire.KeyOp{prefix, {Kind: wire.KeyOp_EXPECT, Key: "none", Index: 1}}
	for name, ops := range map[string][]*wire.KeyOp{"undone": failing, "too many": {prefix, prefix}} {
		t.Run(name, func(t *testing.T) {
			d := newDriverAt(t, wire.LevelPrefixes)
			d.many(MaxPrefixKeys, func(i int) *wire.Command {
				return writeCommand(&wire.KeyOp{Kind: wire.KeyOp_PUT, Key: fmt.Sprintf("%06d", i)})
			})
			var all []*wire.Command
			for range 10 {
				all = append(all, &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}})
			}
			before := d.m.visits.Total()
			d.want(wire.Code_BUSY, d.do(all...))
			if visits := d.m.visits.Total() - before; visits > 2*(MaxPrefixed+MaxPrefixKeys+100) {
				t.Errorf("an entry looks at %d keys", visits)
			}
			d.want(wire.Code_OK, d.do(writeCommand(prefix))) // in the next one
		})
	}
}

// The reference counts as the machine does, at the level and below it.
func TestLimit_KeysOfPrefixesAsReference(t *testing.T) {
	for _, level := range []uint32{wire.LevelPrefixes - 1, wire.LevelPrefixes} {
		r, seq := newRig(), uint64(0)
		r.begin(level)
		r.touch(8) // 2 keys
		entry := func(commands ...*wire.Command) {
			t.Helper()
			s := &wire.Submission{Incarnation: id(1), Member: 1}
			for _, c := range commands {
				seq++
				s.Calls = append(s.Calls, &wire.Call{Seq: seq, Command: must(proto.Marshal(c))})
			}
			batch := &wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{s}}
			if err := r.apply(must(proto.Marshal(batch))); err != nil {
				t.Fatalf("level %d: %v", level, err)
			}
		}
		write := func(ops ...*wire.KeyOp) *wire.Command {
			return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}}
		}
		register := registerCommand(1, MaxTTL)
		register.GetRegister().FeatureLevel = level
		a, b := &wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX, Key: "a"}, &wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX, Key: "b"}
		fail := &wire.KeyOp{Kind: wire.KeyOp_EXPECT, Key: "none", Index: 1}
		put := func(key string) *wire.KeyOp { return &wire.KeyOp{Kind: wire.KeyOp_PUT, Key: key} }
		entry(register, write(put("a1"), put("a2"), put("b1")))
		entry(write(b, fail), write(fail), write(put("c"), a, fail), write(put("c"), b), write(put("d")))
		entry(write(a), write(b))
		if _, kept := r.model.Key("b1"); kept != (level >= wire.LevelPrefixes) {
			t.Errorf("level %d: the last prefix was refused: %v", level, kept)
		}
		entry(write(b), write(a), write(fail))
	}
}

// A leader at the limit of all values can shorten its own, and not lengthen it.
func TestLimit_ShorterValueOfLeader(t *testing.T) {
	d := newDriverAt(t, wire.LevelShorter)
	d.do(openCommand(wire.ID{1}, 0, 0))
	campaign := lockCommand("e", wire.ID{1}, 1)
	campaign.GetLock().Election, campaign.GetLock().Value = true, make([]byte, 100)
	fence := d.want(wire.Code_OK, d.do(campaign)).Fence
	d.m.candidates = MaxCandidates + ReservedCandidates
	for _, row := range []struct {
		bytes int
		want  wire.Code
	}{{101, wire.Code_BUSY}, {50, wire.Code_OK}, {101, wire.Code_BUSY}, {100, wire.Code_OK}, {0, wire.Code_OK}} {
		d.want(row.want, d.do(&wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
			Name: "e", Session: id(1), Handle: 1, Fence: fence, Value: make([]byte, row.bytes),
		}}}))
	}
	if d.m.candidates != MaxCandidates+ReservedCandidates-100 {
		t.Errorf("all values have %d bytes", d.m.candidates)
	}
}
