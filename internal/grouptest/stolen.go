package grouptest

import (
	"crypto/ed25519"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// Stolen returns what the directory of a member that does not run holds of its identity:
// the record, and the key in it.
func Stolen(t testing.TB, from storage.Options) (ed25519.PrivateKey, *wire.Identity) {
	t.Helper()
	store, err := storage.Open(from)
	Must(t, err)
	defer store.Close()
	log, err := raftlog.Open(store)
	Must(t, err)
	data, err := log.Local("identity")
	Must(t, err)
	record := new(wire.Identity)
	Must(t, proto.Unmarshal(data, record))
	return ed25519.NewKeyFromSeed(record.GetKey()), record
}
