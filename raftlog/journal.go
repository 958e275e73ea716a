package raftlog

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// journal is what the logs of all groups in one store share: the number of synced writes with its watermark,
// and the submitted writes, of which all that wait share a batch and its sync.
type journal struct {
	store *storage.Store
	turns turns

	// Owned by the storage goroutine.
	synced    uint64 // number of synced writes
	watermark *watermark
	failed    error // a write has failed: the content of the disk is unknown

	mu      sync.Mutex
	pending []submission // guarded by mu
	large   int          // guarded by mu; of pending
	latest  group        // guarded by mu; of the last submission
	shared  int          // guarded by mu; how many more its log submits in a row until it has the store to itself
}

// submission is a write of one log that waits for the storage goroutine.
type submission struct {
	log  *Log
	ops  []Op
	size int // see sizeOf
	done func(error)
}

func (s submission) isLarge() bool { return s.size >= largeSubmission }

// largeSubmission is the size from which on a submission is large, in bytes.
const largeSubmission = 128 << 10

// SharedWrite is about how many bytes a log should write at a time while it shares the store (see Log.IsShared): a value of 128 KiB with what
// belongs to it. An operation is written at once, whatever its size.
const SharedWrite = 136 << 10

// sharedSubmissions is how many a log submits in a row until it has the store to itself.
const sharedSubmissions = 16

// isShared is Log.IsShared with mu held.
func (j *journal) isShared(l *Log) bool { return j.latest != l.group || j.shared > 0 }

// note notes which log submits. It is called with mu held.
func (j *journal) note(l *Log) {
	if l.group != j.latest {
		j.latest, j.shared = l.group, sharedSubmissions
	}
	j.shared = max(0, j.shared-1)
}

// submit has the storage goroutine write what waits by then. Large submissions have batches of their own, behind the small ones. A sync takes as
// long as its bytes, and so a small one waits for one large batch at most. A large one of a log that shares the store has several batches, of some
// operations each: there is a task for each operation, and all of it is written before what is submitted to the store behind it.
func (j *journal) submit(s submission) {
	s.size = sizeOf(s.ops)
	j.mu.Lock()
	j.pending = append(j.pending, s)
	j.note(s.log)
	if s.isLarge() {
		j.large++
	} else {
		j.turns.submitted(s.log)
	}
	j.mu.Unlock()
	j.writeNext(j.takeSmall)
	if !s.isLarge() {
		return
	}
	for i := range s.ops {
		if i > 0 {
			j.writeNext(j.takeSmall) // what has come while the operations before were written
		}
		j.writeLarge(s.log)
	}
}

// writeNext has the storage goroutine write a batch of what take returns by then.
func (j *journal) writeNext(take func() []submission) {
	var taken []submission
	j.store.Go(func(*pebble.DB) error {
		taken = take()
		return j.writeAll(taken)
	}, func(err error) { report(taken, err) })
}

// writeLarge has the storage goroutine write a batch of what takeLarge returns by then, in its turn.
func (j *journal) writeLarge(of *Log) {
	var taken []submission
	j.store.Go(func(*pebble.DB) error {
		j.awaitTurn(of)
		if j.store.Err() != nil { // a write in the wait has failed
			return nil
		}
		if taken = j.takeLarge(of); len(taken) == 0 {
			return nil
		}
		return j.writeTurn(of, taken)
	}, func(err error) { report(taken, err) })
}

func report(written []submission, err error) {
	for _, s := range written {
		s.done(err)
	}
}

// takeSmall takes what waits and is not large, nor behind a large one of its log.
func (j *journal) takeSmall() (taken []submission) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.large == 0 {
		taken, j.pending = j.pending, nil
		return taken
	}
	var large []*Log
	j.pending = slices.DeleteFunc(j.pending, func(s submission) bool {
		if s.isLarge() {
			large = append(large, s.log)
		}
		if slices.Contains(large, s.log) {
			return false
		}
		taken = append(taken, s)
		return true
	})
	return taken
}

// takeLarge takes what waits of a log that has submitted a large one: what is submitted to the store behind the task must find the write done. Large
// ones of several logs do not share a batch, which small ones would wait for.
func (j *journal) takeLarge(of *Log) (taken []submission) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if part, ok := j.takePart(of); ok {
		return []submission{part}
	}
	large := func(s submission) bool { return s.log == of && s.isLarge() }
	if !slices.ContainsFunc(j.pending, large) {
		return nil // an earlier task has written it
	}
	j.pending = slices.DeleteFunc(j.pending, func(s submission) bool {
		if s.log != of {
			return false
		}
		if s.isLarge() {
			j.large--
		}
		taken = append(taken, s)
		return true
	})
	return taken
}

// takePart takes the first operations of a large submission, at least one, if its log shares the store and others are left: up to SharedWrite, or an eighth of
// what is left, so that a disk with slow syncs does not have many more of them. A disk with a part of the operations is one that
// the process could have left, since it may crash between any two submissions and the core makes one whenever the disk is ready. It is called with mu held.
func (j *journal) takePart(of *Log) (part submission, ok bool) {
	i := slices.IndexFunc(j.pending, func(s submission) bool { return s.log == of })
	if i < 0 || !j.pending[i].isLarge() || !j.isShared(of) {
		return part, false
	}
	s := &j.pending[i]
	n, size, most := 1, sizeOf(s.ops[:1]), max(SharedWrite, s.size/8)
	for n < len(s.ops) && size+sizeOf(s.ops[n:n+1]) <= most {
		size += sizeOf(s.ops[n : n+1])
		n++
	}
	if n == len(s.ops) {
		return part, false
	}
	part = submission{log: of, ops: s.ops[:n], done: func(error) {}} // what fails is reported with the rest, which fails too
	s.ops = s.ops[n:]
	if s.size -= size; !s.isLarge() {
		j.large--
	}
	return part, true
}

// sizeOf returns about how many bytes the operations write.
func sizeOf(ops []Op) (bytes int) {
	for _, op := range ops {
		switch op := op.(type) {
		case Append:
			for _, e := range op.Entries {
				bytes += len(e.GetData())
			}
		case Checkpoint:
			for _, c := range op.Changes {
				bytes += len(c.Key) + len(c.Value)
			}
		}
	}
	return bytes
}

func (j *journal) writeAll(list []submission) error {
	if len(list) == 0 {
		return nil // an earlier task has written it, or a later one does
	}
	return j.write(func(c *commit) error {
		for _, s := range list {
			if err := s.log.fill(c, s.ops); err != nil {
				return err
			}
		}
		return nil
	})
}

// commit is one atomic write.
type commit struct {
	batch         *pebble.Batch
	sync          bool // sync the batch
	syncWatermark bool // and the watermark as well
}

// write fills a batch and writes it, on the storage goroutine.
func (j *journal) write(fill func(*commit) error) error {
	if j.failed != nil {
		return j.failed
	}
	db, unpin, err := j.store.Pin()
	if err != nil {
		return err
	}
	defer unpin()
	c := &commit{batch: db.NewBatch()}
	defer c.batch.Close()
	if err = fill(c); err == nil {
		err = j.commit(c)
	}
	if err != nil {
		j.failed = fmt.Errorf("raft log failed before: %w", err)
	}
	return err
}

// commit writes the batch, and with a synced batch its number, which is a record of the default group.
func (j *journal) commit(c *commit) error {
	if !c.sync {
		return c.batch.Commit(pebble.NoSync)
	}
	j.synced++
	if err := c.batch.Set(group(0).key(kindSynced), encodeNumbers(j.synced), nil); err != nil {
		return err
	}
	if err := c.batch.Commit(pebble.Sync); err != nil {
		return err
	}
	return j.watermark.raise(j.synced, c.syncWatermark)
}

// open opens the watermark, and compares it with the number of synced writes in the database.
func (j *journal) open(synced uint64) error {
	j.synced = synced
	fsys, dir := j.store.FS(), j.store.Dir()
	path := fsys.PathJoin(dir, "WATERMARK")
	if j.store.ReadOnly() {
		j.failed = errors.New("the raft log was opened to be read only")
		return j.checkWatermark(fsys, path)
	}
	w, found, err := openWatermark(fsys, path)
	if err != nil {
		return err
	}
	switch {
	case found:
		err = w.verify(j.synced)
	case j.synced == 0: // nothing was acknowledged yet
		err = w.create(fsys, dir)
	default:
		err = noWatermark(path)
	}
	if err != nil {
		return errors.Join(err, w.file.Close())
	}
	j.watermark = w
	j.store.OnClose(w.close)
	return nil
}

// checkWatermark is the part of open for a log that is only read.
func (j *journal) checkWatermark(fsys vfs.FS, path string) error {
	w, found, err := readWatermark(fsys, path)
	switch {
	case err != nil:
		return err
	case found:
		return w.verify(j.synced)
	case j.synced == 0:
		return nil
	}
	return noWatermark(path)
}

func noWatermark(path string) error {
	return corruptf("watermark %s is missing or unreadable, so this member may have lost acknowledged entries and must not vote", path)
}
