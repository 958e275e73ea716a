package raftlog

import (
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openLog(t *testing.T, options storage.Options) (*storage.Store, *Log) {
	t.Helper()
	store, err := storage.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log, err := Open(store)
	if err != nil {
		t.Fatal(err)
	}
	return store, log
}

func bootstrap(t *testing.T, log *Log, ids ...uint64) {
	t.Helper()
	if err := log.Bootstrap(voters(ids...)); err != nil {
		t.Fatal(err)
	}
}

// openDisk opens a disk as after a restart.
func openDisk(disk vfs.FS) (*storage.Store, *Log, error) {
	store, err := storage.Open(storage.Options{FS: disk, MemTableSize: 64 << 10})
	if err != nil {
		return nil, nil, err
	}
	log, err := Open(store)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, log, nil
}

// write writes the operations as the loop and the storage goroutine do.
func write(log *Log, ops ...Op) error {
	result := make(chan error, 1)
	log.Submit(ops, func(err error) { result <- err })
	select {
	case err := <-result:
		if err != nil {
			return err
		}
	case <-log.store.Failed():
		return log.store.Err()
	}
	for _, op := range ops {
		log.Wrote(op)
	}
	return nil
}

func mustWrite(t *testing.T, log *Log, ops ...Op) {
	t.Helper()
	if err := write(log, ops...); err != nil {
		t.Fatal(err)
	}
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

func voters(ids ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: ids} }

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: new(raftpb.EntryNormal), Data: []byte(data)}
}

// entries returns the entries first to last of one term.
func entries(first, last, term uint64) []*raftpb.Entry {
	var all []*raftpb.Entry
	for i := first; i <= last; i++ {
		all = append(all, entry(i, term, fmt.Sprintf("%d of %d", i, term)))
	}
	return all
}

func set(key, value string) wire.Change {
	return wire.Change{Key: []byte(key), Value: []byte(value)}
}

func readState(t *testing.T, log *Log) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := log.State(func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// stage stages a snapshot and returns its generation.
func stage(t *testing.T, log *Log, changes ...wire.Change) (*Stage, uint64) {
	t.Helper()
	s, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := s.Put(c.Key, c.Value); err != nil {
			t.Fatal(err)
		}
	}
	generation, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return s, generation
}

// unused returns the generations in the database that are not installed.
func unused(t *testing.T, log *Log) []uint64 {
	t.Helper()
	db, unpin, err := log.store.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	generations, err := unusedGenerations(db, log.group, log.written.generation)
	if err != nil {
		t.Fatal(err)
	}
	return generations
}

// startRaft checks a log by starting raft, which panics on a log that
// contradicts itself.
func startRaft(t *testing.T, log *Log) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("raft does not start from this log: %v", p)
		}
	}()
	_, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: log, Applied: log.Applied().Index,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, AsyncStorageWrites: true,
		Logger: &raft.DefaultLogger{Logger: stdlog.New(io.Discard, "", 0)},
	})
	if err != nil {
		t.Error(err)
	}
}

// afterPowerLoss returns the disk without all that was not synced.
func afterPowerLoss(disk *vfs.MemFS) *vfs.MemFS { return disk.CrashClone(vfs.CrashCloneCfg{}) }

// readFiles returns the content of each file in the data directory.
func readFiles(t *testing.T, disk vfs.FS) map[string][]byte {
	t.Helper()
	names, err := disk.List("/conclave")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		file, err := disk.Open("/conclave/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	return all
}

// overwrite writes to a file in place.
func overwrite(t *testing.T, disk vfs.FS, path string, at int64, with []byte) {
	t.Helper()
	file, err := disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(with, at); err != nil {
		t.Fatal(err)
	}
}
