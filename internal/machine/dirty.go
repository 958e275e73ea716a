package machine

import (
	"slices"

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
	d.expect(cap(d.touched))
	d.at[t.key] = len(d.touched)
	d.touched = append(d.touched, t)
}

// expect prepares an entry's first put for as many records.
func (d *dirty) expect(n int) {
	if d.at == nil {
		d.at = make(map[string]int, n)
		d.touched = slices.Grow(d.touched, n)
	}
}

// drop marks the record under key as deleted.
func (d *dirty) drop(key string) { d.put(key, nil) }

// flush returns the changes and resets d. They share one array, which belongs to
// the caller; d keeps capacity for as many.
func (d *dirty) flush() []wire.Change {
	changes := make([]wire.Change, len(d.touched))
	bytes := make([]byte, 0, 64*len(d.touched))
	for i, t := range d.touched {
		start := len(bytes)
		bytes = append(bytes, t.key...)
		changes[i].Key, changes[i].Created = bytes[start:len(bytes):len(bytes)], t.created
		if t.record == nil {
			continue
		}
		start = len(bytes)
		bytes = encode(bytes, t.record)
		changes[i].Value = bytes[start:len(bytes):len(bytes)]
	}
	*d = dirty{touched: make([]touched, 0, len(d.touched))}
	return changes
}

// encode appends a record's durable form. Deterministic makes equal states
// equal bytes, which the digests that members compare rely on.
func encode(b []byte, r record) []byte {
	encoded, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, r.state())
	if err != nil {
		// The only possible cause is a string that is not UTF-8, and the
		// decoder of commands lets none in.
		return b
	}
	return encoded
}
