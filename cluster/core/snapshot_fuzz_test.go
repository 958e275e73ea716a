package core

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// FuzzSnapshotTaken: each snapshot, whatever its header and state, is either refused, and
// then its stage is discarded and the member's state unchanged, or installed at the index
// in its header, and is answered once. An invalid state stops the member with an error.
func FuzzSnapshotTaken(f *testing.F) {
	state := &wire.SnapshotChunk{}
	m := machine.New()
	for _, c := range m.Apply(1, 1, nil).Changes {
		state.Pairs = append(state.Pairs, &wire.Pair{Key: c.Key, Value: c.Value})
	}
	sound, err := proto.Marshal(state)
	if err != nil {
		f.Fatal(err)
	}
	for _, index := range []uint64{3, 6, 7, 50, 1 << 62, 1<<64 - 1} {
		header := encoded(f, snapshotMessage(index))
		f.Add(false, header, sound)
		f.Add(true, header, sound)
	}
	f.Add(false, encoded(f, message(raftpb.MsgHeartbeat, 2, 5)), sound)
	f.Add(false, encoded(f, snapshotMessage(50)), []byte{0x0a, 0x02, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, leads bool, header, state []byte) {
		body, chunk := new(raftpb.Message), new(wire.SnapshotChunk)
		if proto.Unmarshal(header, body) != nil || proto.Unmarshal(state, chunk) != nil ||
			!plausible(body.GetSnapshot().GetMetadata().GetConfState()) {
			return
		}
		body.From, body.To = new(uint64(2)), new(uint64(1))
		r := newRig(t).inRole(leads)
		applied, answers := r.applied, 0
		answer := errUnanswered
		s := r.stageOf(chunk.GetPairs())
		s.Done = func(err error) { answer = err; answers++ }
		r.ReceiveSnapshot(2, body, s)
		if !r.drive(s, answers) {
			return
		}
		switch {
		case answers != 1:
			t.Fatalf("answered %d times", answers)
		case answer == nil && r.applied != body.GetSnapshot().GetMetadata().GetIndex():
			t.Fatalf("installed, and applied to %d", r.applied)
		case answer != nil && (r.applied < applied || r.log.Applied().Digest == s.Digest):
			t.Fatalf("%v, and applied to %d, before to %d", answer, r.applied, applied)
		case answer != nil && !errors.Is(answer, ErrInadmissible) && !errors.Is(answer, ErrUnwanted):
			t.Fatal(answer)
		}
		r.settled()
	})
}

// plausible reports whether raft accepts a configuration. At others it panics, and the
// member stops.
func plausible(conf *raftpb.ConfState) bool {
	all := slices.Concat(conf.GetVoters(), conf.GetLearners())
	slices.Sort(all)
	return len(conf.GetVoters()) > 0 && all[0] != 0 && len(slices.Compact(all)) == len(conf.GetVoters())+len(conf.GetLearners()) &&
		len(conf.GetVotersOutgoing())+len(conf.GetLearnersNext()) == 0 && !conf.GetAutoLeave() && len(conf.ProtoReflect().GetUnknown()) == 0
}

func (r *rig) stageOf(pairs []*wire.Pair) Staged {
	r.t.Helper()
	stage, err := r.log.Stage()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range pairs {
		if err := stage.Put(p.GetKey(), p.GetValue()); err != nil {
			r.t.Fatal(err)
		}
	}
	generation, err := stage.Finish()
	if err != nil {
		r.t.Fatal(err)
	}
	return Staged{Generation: generation, Digest: 7}
}

// drive carries out all effects. It returns false if the member has stopped.
func (r *rig) drive(s Staged, answers int) bool {
	r.t.Helper()
	for {
		out, err := r.Take(0)
		if err != nil {
			return false
		}
		if answers > 0 && !r.discards(out, s.Generation) {
			r.t.Fatal("refused, and what was staged stays")
		}
		if len(out.Batch.writes) == 0 {
			return true
		}
		var fresh Machine
		for _, w := range out.Batch.writes {
			if w.op == nil {
				continue
			}
			if err := r.log.Write([]raftlog.Op{w.op}); err != nil {
				r.t.Fatal(err)
			}
			if _, ok := w.op.(raftlog.Install); ok {
				var readErr error
				loaded, err := raftlog.Load(r.log, machine.Load)
				if errors.Join(err, readErr) != nil {
					return false
				}
				fresh = loaded
			}
		}
		r.Stored(fresh)
		answers = 0 // looked at
	}
}
