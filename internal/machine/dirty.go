package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// record is a part of the state that is stored under one durable key.
type record interface {
	state() proto.Message
}

// dirty collects the durable keys that an entry touches, in the order of the first
// touch. Each is encoded once, when the entry has been applied.
type dirty struct {
	touched []touched
	at      map[string]int // a key's position in touched
}

type touched struct {
	key     string
	record  record // nil deletes the key
	created bool   // the key did not exist before the entry
}

// put marks the record under key as new or changed.
func (d *dirty) put(key string, r record) {
	if i, ok := d.at[key]; ok {
		d.touched[i].record = r
		return
	}
	d.touch(touched{key: key, record: r})
}

// create is put for a key that did not exist before.
func (d *dirty) create(key string, r record) {
	if _, ok := d.at[key]; ok {
		d.put(key, r) // deleted by this entry, so it did exist
		return
	}
	d.touch(touched{key, r, true})
}

func (d *dirty) touch(t touched) {
	if d.at == nil {
		d.at = make(map[string]int)
	}
	d.at[t.key] = len(d.touched)
	d.touched = append(d.touched, t)
}

// expect prepares an entry's first put for as many records.
func (d *dirty) expect(n int) {
	if n > maxKept && len(d.touched) == 0 {
		*d = dirty{touched: make([]touched, 0, n), at: make(map[string]int, n)}
	}
}

// drop marks the record under key as deleted.
func (d *dirty) drop(key string) { d.put(key, nil) }

// maxKept bounds the records of which an empty dirty keeps the memory: clearing the map
// takes as long as it is large.
const maxKept = 4096

// flush returns the changes and resets d. They share one array, which belongs to
// the caller.
func (d *dirty) flush() []wire.Change {
	changes := make([]wire.Change, len(d.touched))
	w := wire.Writer{Buf: make([]byte, 0, 64*len(d.touched))}
	for i, t := range d.touched {
		start := len(w.Buf)
		w.Buf = append(w.Buf, t.key...)
		changes[i].Key, changes[i].Created = w.Buf[start:len(w.Buf):len(w.Buf)], t.created
		if t.record == nil {
			continue
		}
		start = len(w.Buf)
		appendState(&w, t.record)
		changes[i].Value = w.Buf[start:len(w.Buf):len(w.Buf)]
	}
	if len(d.touched) > maxKept {
		*d = dirty{}
		return changes
	}
	clear(d.at)
	clear(d.touched)
	d.touched = d.touched[:0]
	return changes
}
