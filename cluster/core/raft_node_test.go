package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// What a leader sends ahead to a member whose disk is slow is kept there: 8 MiB of one group, and 2 of each of many.
func TestInflight_Bytes(t *testing.T) {
	const size = 128 << 10
	for _, test := range []struct {
		name string
		logs *Logs
		most int
	}{
		{"default group", nil, maxInflightBytes},
		{"further group", NewLogs(maxLogs, maxAwaitedLogs, leastLog), sharedInflightBytes},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Budgets.Logs = test.logs }).follow().lead()
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
			r.effects()
			ahead := 0
			for seq := range uint64(2 * maxInflightBytes / size) {
				s := command(seq + 1)
				s.Calls[0].Command = make([]byte, size)
				r.mustSubmit(s)
				sent := r.settle()
				r.mustReceive(message(raftpb.MsgAppResp, 2, r.term, following(r.last, 0)))
				for _, m := range append(sent, r.settle()...) {
					for _, e := range m.GetEntries() {
						if m.GetTo() == 3 {
							ahead += len(e.GetData())
						}
					}
				}
			}
			if ahead < test.most-2*size || ahead > test.most+maxMessageSize {
				t.Errorf("%d bytes are sent ahead, want %d", ahead, test.most)
			}
		})
	}
}
