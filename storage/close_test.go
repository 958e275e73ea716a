package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Every call of Close returns when the store has closed, and the calls that wait for another
// one let virtual time pass.
func TestClose_Concurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{Dir: "data", FS: vfs.NewCrashableMem()})
		if err != nil {
			t.Fatal(err)
		}
		_, unpin, err := s.Pin()
		if err != nil {
			t.Fatal(err)
		}
		began, errs := time.Now(), make(chan error)
		for range 3 {
			go func() { errs <- s.Close() }()
		}
		time.Sleep(time.Second)
		select {
		case err := <-errs:
			t.Errorf("closed while pinned: %v", err)
		default:
		}
		unpin()
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}
