package raftlog

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/conclave-go/conclave/storage"
)

// Small writes of some logs do not wait for large ones of others: they share a batch before those. Each log's writes keep their order, and
// each is written before what was submitted to the store behind it.
func TestJournal_LargeWritesApart(t *testing.T) {
	store, logs := openLogs(t, 5)
	var written []string
	synced := logs[0].journal.synced
	release := make(chan struct{})
	store.Go(func(*pebble.DB) error { <-release; return nil }, func(error) {})
	var wait sync.WaitGroup
	next := make(map[*Log]uint64)
	submit := func(group, size int) {
		log := logs[group]
		if next[log] == 0 {
			next[log] = 2
		}
		op := Append{HardState: hardState(1, 0, next[log]), Entries: entries(next[log], next[log], 1)}
		op.Entries[0].Data = make([]byte, size)
		next[log]++
		wait.Add(1)
		batch := func() uint64 { return logs[0].journal.synced - synced }
		log.Submit([]Op{op}, func(err error) {
			if err != nil {
				t.Error(err)
			}
			written = append(written, fmt.Sprintf("%d: group %d, %d KiB", batch(), group, size>>10))
			wait.Done()
		})
	}
	submit(1, 1024<<10)
	submit(2, 1<<10)
	submit(1, 2<<10) // behind a large one of its log
	submit(3, 512<<10)
	submit(4, 512<<10)
	var behind []string
	store.Go(func(*pebble.DB) error { behind = slices.Clone(written); return nil }, func(error) {})
	submit(0, 3<<10)
	close(release)
	wait.Wait()
	if err := store.Do(func(*pebble.DB) error { return nil }); err != nil { // all tasks have ended
		t.Fatal(err)
	}
	want := []string{
		"1: group 2, 1 KiB", "1: group 0, 3 KiB", "2: group 1, 1024 KiB", "2: group 1, 2 KiB", "3: group 3, 512 KiB", "3: group 4, 512 KiB",
	}
	if !slices.Equal(written, want) {
		t.Errorf("written by batch:\n%s\nwant:\n%s", strings.Join(written, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(behind, want) {
		t.Errorf("before what was submitted behind them: %q", behind)
	}
	if logs[0].journal.large != 0 || len(logs[0].journal.pending) != 0 {
		t.Error("submissions are left")
	}
}

// openLogs opens a store with the logs of that many groups.
func openLogs(t *testing.T, groups int) (*storage.Store, []*Log) {
	t.Helper()
	store, log := openLog(t, storage.Options{Dir: t.TempDir()})
	bootstrap(t, log, 1)
	logs := []*Log{log}
	for number := 1; number < groups; number++ {
		other, err := log.OpenGroup(uint32(number))
		if err != nil {
			t.Fatal(err)
		}
		bootstrap(t, other, 1)
		logs = append(logs, other)
	}
	return store, logs
}
