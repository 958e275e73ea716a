package raftlog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

func TestLocal_SurvivesPowerLoss(t *testing.T) {
	disk := vfs.NewCrashableMem()
	_, log := openLog(t, storage.Options{FS: disk})
	for name, value := range map[string]string{"identity": "me", "peer/1": "a", "peer/2": "b", "peerless": "c", "empty": ""} {
		if err := log.SetLocal(name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.SetLocal("peer/2", nil); err != nil {
		t.Fatal(err)
	}
	store, log := openLog(t, storage.Options{FS: afterPowerLoss(disk)})
	for name, want := range map[string]string{"identity": "me", "peer/1": "a", "empty": ""} {
		if got, err := log.Local(name); err != nil || got == nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := log.Local("peer/2"); got != nil || err != nil {
		t.Errorf("a removed record: %q, %v", got, err)
	}
	log.SetLocalNoSync("peer/3", []byte("d"))
	if err := store.Do(func(*pebble.DB) error { return nil }); err != nil { // runs after it
		t.Fatal(err)
	}
	peers, err := log.Locals("peer/")
	if err != nil || len(peers) != 2 || string(peers["peer/1"]) != "a" || string(peers["peer/3"]) != "d" {
		t.Errorf("Locals = %q, %v", peers, err)
	}
	store.Close()
	if _, err := log.Local("identity"); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Local after Close = %v, want ErrClosed", err)
	}
	if err := log.SetLocal("identity", nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("SetLocal after Close = %v, want ErrClosed", err)
	}
}
