package raftlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Open reads the log of a group and checks it: that every entry follows the one
// before, that nothing is missing that the others rely on, and that all is
// there that this member has acknowledged. Where nothing is, the log is empty.
// The log is closed with the store.
func Open(store *storage.Store, number uint32) (*Log, error) {
	l := &Log{store: store, group: group(number)}
	err := store.Do(l.open)
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", store.Dir(), err)
	}
	return l, nil
}

func (l *Log) open(db *pebble.DB) error {
	header, err := readHeader(db, l.group)
	if err != nil {
		return err
	}
	entries, marks, err := readEntries(db, l.group, header.truncated)
	if err != nil {
		return err
	}
	l.disk = disk{
		hard: header.hard, applied: header.applied, truncated: header.truncated,
		marks: marks, generation: header.generation, generations: header.generation, synced: header.synced,
	}
	if err := l.disk.verify(); err != nil {
		return err
	}
	if err := l.openWatermark(); err != nil {
		return err
	}
	l.memory = memory{
		hard: committed(header.hard, header.applied.Index), conf: header.conf, applied: header.applied,
		truncated: header.truncated, entries: entries, bytes: size(entries),
	}
	return l.removeStages(db)
}

func (l *Log) openWatermark() error {
	fsys, dir := l.store.FS(), l.store.Dir()
	name := "WATERMARK"
	if l.group != 0 {
		name = fmt.Sprintf("WATERMARK-%d", l.group)
	}
	path := fsys.PathJoin(dir, name)
	w, found, err := openWatermark(fsys, path)
	if err != nil {
		return err
	}
	switch {
	case found:
		err = w.verify(l.disk.synced)
	case l.disk.synced == 0: // nothing has been acknowledged yet
		err = w.create(fsys, dir)
	default:
		err = damaged("%s is gone or unreadable, so it is not known what this member acknowledged; it must not vote: move the directory away and let it join as a new member", path)
	}
	if err != nil {
		return errors.Join(err, w.file.Close())
	}
	l.disk.watermark = w
	l.store.OnClose(w.close)
	return nil
}

// verify checks what entries cannot show one by one.
func (d *disk) verify() error {
	last := d.last()
	switch a := d.applied; {
	case a.Index < d.truncated.index, a.Index > last.index:
		return damaged("the state is that of entry %d, and the log goes from %d to %d", a.Index, d.truncated.index+1, last.index)
	case d.hard.GetCommit() > last.index:
		return damaged("entry %d is committed, and the log ends at %d", d.hard.GetCommit(), last.index)
	case d.hard.GetTerm() < last.term:
		return damaged("the term is %d, and the log ends in term %d", d.hard.GetTerm(), last.term)
	}
	if m, _ := d.at(d.applied.Index); m.term != d.applied.Term {
		return damaged("the state is that of entry %d of term %d, and that entry is of term %d", d.applied.Index, d.applied.Term, m.term)
	}
	return nil
}

// removeStages removes snapshots that were taken in and never installed.
func (l *Log) removeStages(db *pebble.DB) error {
	unused, err := unusedGenerations(db, l.group, l.disk.generation)
	if err != nil || len(unused) == 0 {
		return err
	}
	batch := db.NewBatch()
	defer batch.Close()
	w := &writer{group: l.group, batch: batch}
	for _, generation := range unused {
		if err := w.deleteGeneration(generation); err != nil {
			return err
		}
	}
	return batch.Commit(pebble.NoSync)
}

// unusedGenerations seeks from one generation to the next, without reading
// what is in them.
func unusedGenerations(r pebble.Reader, g group, used uint64) (unused []uint64, err error) {
	kind := g.key(kindState)
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: kind, UpperBound: after(kind)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for valid := iter.First(); valid; {
		generation, _, ok := number(iter.Key())
		if !ok {
			return nil, damaged("the key %x is not one of the state", iter.Key())
		}
		if generation != used {
			unused = append(unused, generation)
		}
		valid = iter.SeekGE(after(g.state(generation, nil)))
	}
	return unused, iter.Error()
}

// header is the log without its entries.
type header struct {
	hard       *raftpb.HardState // nil: none yet
	conf       *raftpb.ConfState
	applied    Applied
	truncated  mark
	generation uint64
	synced     uint64
}

func readHeader(r pebble.Reader, g group) (header, error) {
	h := header{conf: new(raftpb.ConfState)}
	hard := new(raftpb.HardState)
	var chain uint64
	message := func(name string, m proto.Message) func([]byte) error {
		return func(record []byte) error { return decodeMessage(name, record, m) }
	}
	numbers := func(name string, places ...*uint64) func([]byte) error {
		return func(record []byte) error { return decodeNumbers(name, record, places...) }
	}
	for kind, decode := range map[byte]func([]byte) error{
		kindHardState: func(record []byte) error {
			h.hard = hard
			return decodeMessage("hard state", record, hard)
		},
		kindConfState:  message("membership", h.conf),
		kindApplied:    numbers("applied", &h.applied.Index, &h.applied.Term, &h.applied.Digest),
		kindTruncated:  numbers("truncated", &h.truncated.index, &h.truncated.term, &chain),
		kindGeneration: numbers("generation", &h.generation),
		kindSynced:     numbers("synced", &h.synced),
	} {
		record, err := get(r, g.key(kind))
		if err == nil && record != nil {
			err = decode(record)
		}
		if err != nil {
			return h, err
		}
	}
	h.truncated.chain = uint32(chain)
	return h, nil
}

// readEntries reads the entries behind truncated and follows their chain.
func readEntries(r pebble.Reader, g group, truncated mark) (entries []*raftpb.Entry, marks []mark, err error) {
	previous := truncated
	err = each(r, g.key(kindEntry), func(key, record []byte) error {
		index, _, ok := number(key)
		if !ok || index != previous.index+1 {
			return damaged("entry %d follows entry %d", index, previous.index)
		}
		e, chain, err := decodeEntry(index, record)
		if err != nil {
			return err
		}
		if e.GetTerm() < previous.term {
			return damaged("entry %d of term %d follows one of term %d", index, e.GetTerm(), previous.term)
		}
		previous = follow(previous, e)
		if previous.chain != chain {
			return damaged("entry %d does not match its checksum", index)
		}
		entries, marks = append(entries, e), append(marks, previous)
		return nil
	})
	return entries, marks, err
}
