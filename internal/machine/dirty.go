package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// record is a part of the state that has a durable form of its own.
type record interface {
	state() proto.Message
}

// dirty collects the keys that an entry touched, in the order of the first
// touch, and encodes each once, as it is when the entry is done.
type dirty struct {
	keys    []string
	records []record // nil deletes the key
	at      map[string]int
}

// put says that the record under key is new or changed.
func (d *dirty) put(key string, r record) {
	if i, ok := d.at[key]; ok {
		d.records[i] = r
		return
	}
	if d.at == nil {
		d.at = make(map[string]int)
	}
	d.at[key] = len(d.keys)
	d.keys = append(d.keys, key)
	d.records = append(d.records, r)
}

// drop says that the record under key is gone.
func (d *dirty) drop(key string) { d.put(key, nil) }

// flush returns the changes and begins anew.
func (d *dirty) flush() []wire.Change {
	changes := make([]wire.Change, len(d.keys))
	for i, key := range d.keys {
		changes[i] = wire.Change{Key: []byte(key), Value: encode(d.records[i])}
	}
	*d = dirty{}
	return changes
}

// encode returns a record's durable form. Deterministic makes equal states
// equal bytes, which the digests that members compare rely on.
func encode(r record) []byte {
	if r == nil {
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{}, r.state())
	if err != nil {
		// The only possible cause is a string that is not UTF-8, and none
		// passes the checks of limits.go.
		return []byte{}
	}
	return b
}
