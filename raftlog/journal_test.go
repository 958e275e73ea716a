package raftlog

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/storage"
)

// Small writes of some logs do not wait for large ones of others: they share a batch before those. Each log's writes keep their order, and
// each is written before what was submitted to the store behind it.
func TestJournal_LargeWritesApart(t *testing.T) {
	store, logs := openLogs(t, storage.Options{Dir: t.TempDir()}, 5)
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
		"1: group 2, 1 KiB", "1: group 0, 3 KiB", "2: group 1, 1024 KiB", "2: group 1, 2 KiB", "3: group 3, 512 KiB", "4: group 4, 512 KiB",
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

// sharedStore is a store whose storage goroutine is the test's.
type sharedStore struct {
	t       *testing.T
	store   *storage.Store
	journal *journal
	next    map[*Log]uint64 // index of the next entry
	written []string
}

// submit submits an operation of each size together, and returns the tasks of the storage goroutine.
func (s *sharedStore) submit(log *Log, sizes ...int) (tasks []func()) {
	var ops []Op
	for _, size := range sizes {
		index := max(s.next[log], BootstrapIndex+1)
		s.next[log] = index + 1
		ops = append(ops, Append{HardState: hardState(1, 0, index), Entries: []*raftpb.Entry{entry(index, 1, string(make([]byte, size)))}})
	}
	begun := s.journal.synced
	return s.store.Gather(func() {
		log.Submit(ops, func(err error) {
			if err != nil {
				s.t.Error(err)
			}
			s.written = append(s.written, fmt.Sprintf("group %d, %d operations in batch %d", log.group, len(ops), s.journal.synced-begun))
		})
	})
}

func run(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}

// A large write of a log that shares the store has several batches, and a small one of another log that comes meanwhile is in the next one. After a
// power loss between two of them the log opens with the operations before. A log that is alone writes all of it at once.
func TestJournal_SharedStore(t *testing.T) {
	const part, large = SharedWrite * 3 / 4, SharedWrite * 3 / 2
	disk := vfs.NewCrashableMem()
	store, logs := openLogs(t, storage.Options{FS: disk, Inline: true}, 3)
	a, b := logs[1], logs[2]
	s := &sharedStore{t: t, store: store, journal: a.journal, next: make(map[*Log]uint64)}
	run(s.submit(a, 10))
	tasks := s.submit(b, part, large, 10, 20, part)
	run(tasks[:2])
	lost := disk.CrashClone(vfs.CrashCloneCfg{})
	meanwhile := s.submit(a, 10)
	run(tasks[2:])
	run(meanwhile)
	for b.IsShared() {
		run(s.submit(b, 10))
	}
	if alone := s.written[3:]; len(alone) != sharedSubmissions {
		t.Errorf("alone after %d further writes, want %d", len(alone), sharedSubmissions)
	}
	s.written = s.written[:3]
	run(s.submit(b, part, large))
	want := []string{
		"group 1, 1 operations in batch 1",
		"group 1, 1 operations in batch 1", // the next one since it was submitted
		"group 2, 5 operations in batch 4", // that of the other group among them
		"group 2, 2 operations in batch 1",
	}
	if !slices.Equal(s.written, want) {
		t.Errorf("written:\n%s\nwant:\n%s", strings.Join(s.written, "\n"), strings.Join(want, "\n"))
	}
	if s.journal.large != 0 || len(s.journal.pending) != 0 {
		t.Error("submissions are left")
	}
	restarted, log, err := openDisk(lost)
	if err != nil {
		t.Fatal(err)
	}
	defer restarted.Close()
	if log, err = log.OpenGroup(2); err != nil {
		t.Fatal(err)
	}
	if last := log.last(); last != BootstrapIndex+1 {
		t.Errorf("after a power loss behind the first batch the log ends at %d, want %d", last, BootstrapIndex+1)
	}
}

// A disk that has fallen behind does not need a sync for each operation that has gathered.
func TestJournal_PartsGrowWithWhatIsLeft(t *testing.T) {
	store, logs := openLogs(t, storage.Options{FS: vfs.NewMem(), Inline: true}, 3)
	a, b := logs[1], logs[2]
	s := &sharedStore{t: t, store: store, journal: a.journal, next: make(map[*Log]uint64)}
	run(s.submit(a, 10))
	run(s.submit(b, slices.Repeat([]int{SharedWrite}, 64)...))
	var batches int
	if _, err := fmt.Sscanf(s.written[1], "group 2, 64 operations in batch %d", &batches); err != nil || batches < 20 || batches > 30 {
		t.Errorf("%q, %v: want 20 to 30 batches", s.written[1], err)
	}
}

// openLogs opens a store with the logs of that many groups.
func openLogs(t *testing.T, options storage.Options, groups int) (*storage.Store, []*Log) {
	t.Helper()
	store, log := openLog(t, options)
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
