package core

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

func processOf(boot uint64) Process {
	return Process{Member: 2, Boot: boot, Incarnation: wire.ID{byte(boot)}}
}

// forgetful is what a peer knows of a member, and the position that a process presents.
var forgetful = []struct {
	name    string
	learn   func(*Acknowledged)
	process Process
	has     Position
	want    string // "": accepted
}{
	{"an unknown member", func(*Acknowledged) {}, processOf(1), Position{}, ""},
	{"committed entries forgotten", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 90})
	}, processOf(2), Position{6, 89}, "forgot acknowledged entries (has 89, acknowledged 90)"},
	{"an uncommitted entry overwritten in a later term", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 90})
	}, processOf(2), Position{6, 90}, ""},
	{"an uncommitted entry forgotten in its term", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
	}, processOf(2), Position{5, 99}, "forgot acknowledged entries (has 99, acknowledged 100)"},
	{"a term forgotten", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
	}, processOf(2), Position{4, 100}, "forgot acknowledged entries (has term 4, acknowledged term 5)"},
	{"everything still there", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 200})
	}, processOf(2), Position{5, 100}, ""},
	{"committed beyond what the member acknowledged", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 200})
	}, processOf(2), Position{6, 100}, ""},
	{"committed by another leader than the one that it acknowledged to", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{6, 200})
	}, processOf(2), Position{6, 50}, ""},
	{"a hello that the same process's acknowledgment has overtaken", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 100})
	}, processOf(1), Position{5, 90}, ""},
	{"the same process, behind its predecessor", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Commit(Position{5, 100})
		k.Add(processOf(2), Position{5, 80})
	}, processOf(2), Position{5, 80}, "forgot acknowledged entries (has 80, acknowledged 100)"},
	{"a predecessor's acknowledgment that arrives late", func(k *Acknowledged) {
		k.Add(processOf(2), Position{5, 110})
		k.Add(processOf(1), Position{5, 100})
	}, processOf(2), Position{5, 99}, "forgot acknowledged entries (has 99, acknowledged 100)"},
	{"after two restarts", func(k *Acknowledged) {
		k.Add(processOf(1), Position{5, 100})
		k.Add(processOf(2), Position{6, 120})
		k.Commit(Position{6, 120})
	}, processOf(3), Position{7, 119}, "forgot acknowledged entries (has 119, acknowledged 120)"},
	{"a digest of a state that it must have applied", func(k *Acknowledged) {
		k.AddApplied(processOf(1), 64)
	}, processOf(2), Position{9, 63}, "forgot acknowledged entries (has 63, acknowledged 64)"},
	{"what was recorded before a restart of the peer", func(k *Acknowledged) {
		k.Load(2, Position{5, 100})
	}, processOf(2), Position{5, 99}, "forgot acknowledged entries (has 99, acknowledged 100)"},
	{"a removed member", func(k *Acknowledged) {
		k.Load(2, Position{5, 100})
		k.Forget(2)
	}, processOf(2), Position{}, ""},
}

func TestAcknowledged_Check(t *testing.T) {
	for _, test := range forgetful {
		t.Run(test.name, func(t *testing.T) {
			k := new(Acknowledged)
			test.learn(k)
			err := k.Check(test.process, test.has)
			if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// A position is recorded once, when it has changed, and only what no leader can overwrite.
func TestAcknowledged_Unsaved(t *testing.T) {
	k, saved := new(Acknowledged), map[uint64]Position{}
	count := 0
	save := func(member uint64, p Position) { saved[member] = p; count++ }
	want := func(when string, times int, p Position) {
		t.Helper()
		count = 0
		if k.Unsaved(save); count != times || saved[2] != p {
			t.Errorf("%s: saved %d times, %+v, want %d times, %+v", when, count, saved[2], times, p)
		}
	}
	k.Add(processOf(1), Position{5, 100})
	want("nothing committed", 0, Position{})
	k.Commit(Position{5, 60})
	want("committed", 1, Position{5, 60})
	want("again", 0, Position{5, 60})
	k.Add(processOf(2), Position{6, 110})
	k.Commit(Position{6, 105})
	want("by the next process", 1, Position{6, 105})
	loaded := new(Acknowledged)
	loaded.Load(2, saved[2])
	if err := loaded.Check(processOf(3), Position{6, 104}); err == nil {
		t.Error("a loaded record accepts less")
	}
}

// Only a leader counts acknowledgments, and only those of its term.
func TestAcknowledges_OfLeadersTerm(t *testing.T) {
	r := newRig(t).follow()
	ack := func(term uint64) *raftpb.Message { return message(raftpb.MsgAppResp, 2, term, following(3, 0)) }
	if _, ok := r.Acknowledges(ack(r.term)); ok {
		t.Error("a follower counts")
	}
	r.lead()
	if p, ok := r.Acknowledges(ack(r.term)); !ok || p != (Position{r.term, 3}) {
		t.Errorf("a leader counts %v, %v", p, ok)
	}
	if _, ok := r.Acknowledges(ack(r.term - 1)); ok {
		t.Error("of an earlier term")
	}
	rejection := ack(r.term)
	rejection.Reject = new(true)
	if _, ok := r.Acknowledges(rejection); ok {
		t.Error("a rejection")
	}
	if _, ok := r.Acknowledges(message(raftpb.MsgHeartbeatResp, 2, r.term)); ok {
		t.Error("a heartbeat's response")
	}
}

// A commit index that the log does not reach, of the leader that this member follows,
// proves that the log has lost entries. That of any other member proves nothing.
func TestReceive_CommitBeyondLog(t *testing.T) {
	const beyond = 7 // the log ends at 6
	for _, test := range []struct {
		name    string
		from    uint64
		term    uint64
		commit  uint64
		want    error
		forgets bool // its leader, as when the connection breaks
	}{
		{"of its leader", 2, 5, beyond, ErrForgot, false},
		{"of its leader, within the log", 2, 5, beyond - 1, nil, false},
		{"of an earlier term", 2, 4, beyond, nil, false},
		{"of a member that does not lead", 3, 5, beyond, ErrInadmissible, false},
		{"the first message of a later term", 3, 6, beyond, ErrInadmissible, false},
		{"the first message of a later term, of its former leader", 2, 6, beyond, ErrInadmissible, false},
		{"of its former leader, which it has forgotten", 2, 5, beyond, ErrInadmissible, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).follow()
			if test.forgets {
				r.PeerDisconnected(2)
			}
			m := message(raftpb.MsgHeartbeat, test.from, test.term, commit(test.commit))
			if err := r.Receive(test.from, m); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			} else if test.want == ErrForgot && !strings.Contains(err.Error(), "forgot acknowledged entries (has 6, acknowledged 7)") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A follower that changes its leader, by a message that Take has not seen yet, listens to
// the new one only.
func TestReceive_CommitBeyondLogOfDeposedLeader(t *testing.T) {
	r := newRig(t).follow()
	r.mustReceive(message(raftpb.MsgHeartbeat, 3, 6))
	if err := r.Receive(2, message(raftpb.MsgHeartbeat, 2, 5, commit(7))); err != nil {
		t.Errorf("of the former leader: %v", err)
	}
	if err := r.Receive(2, message(raftpb.MsgHeartbeat, 2, 6, commit(7))); !errors.Is(err, ErrInadmissible) {
		t.Errorf("of the former leader, in the new one's term: %v", err)
	}
	if err := r.Receive(3, message(raftpb.MsgHeartbeat, 3, 6, commit(7))); !errors.Is(err, ErrForgot) {
		t.Errorf("of the new leader: %v", err)
	}
}
