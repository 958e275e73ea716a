package cluster

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// A peer whose key is not the recorded one is refused, although its member ID is the
// same, also after a restart and after a change of its address.
func TestAdmit_RecordedKey(t *testing.T) {
	key, other := ed25519.PublicKey(bytes.Repeat([]byte{1}, 32)), ed25519.PublicKey(bytes.Repeat([]byte{2}, 32))
	disk := vfs.NewCrashableMem()
	check := func(log *raftlog.Log, r *roster.Roster) {
		t.Helper()
		known := replica.New(replica.Config{Log: log}).Acknowledged
		m := &admission{roster: r, acknowledged: func(p transport.Peer) error { return known.Admit(p, core.Position{}) }}
		for _, test := range []struct {
			member uint64
			key    ed25519.PublicKey
			admits bool
		}{{7, key, true}, {7, other, false}, {7, nil, false}, {9, other, true}} {
			if err := m.admit(transport.Peer{Member: test.member, Key: test.key}); (err == nil) != test.admits {
				t.Errorf("member %d with key %x: %v", test.member, test.key, err)
			}
		}
	}
	withLog(t, disk, func(log *raftlog.Log) {
		r := rosterOf(t, log, 7, 9)
		r.SetFounder(&wire.Founder{Member: 7, Advertise: "a", Key: key})
		check(log, r)
		r.Connected(7, "seven", "b")
		r.BootChanged(7, 3)
		check(log, r)
	})
	withLog(t, disk, func(log *raftlog.Log) { check(log, rosterOf(t, log, 7, 9)) })
}
