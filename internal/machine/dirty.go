package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/slots"
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
	at      map[string]int   // a key's position in touched, but for tickets
	tickets map[string]int32 // those of incarnations that the entry has ended
}

// touched is a key. Most are those of tickets, which are made only when they are encoded.
type touched struct {
	key     string
	by      *incarnation // of a ticket, with seq; then there is no key
	seq     uint64
	record  record // nil deletes the key
	created bool   // the key did not exist before the entry
	before  int32  // the position of the ticket of the same incarnation before this one, or -1
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
	d.touch(touched{key: key, record: r, created: true})
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

// ticket is put, create or drop (nil) for an outcome. A map would cost more than all else that is
// done for it, so its window knows the position in touched: at is what ticket returned last
// for this outcome, perhaps in an earlier entry.
func (d *dirty) ticket(by *incarnation, seq uint64, at int32, r record, created bool) int32 {
	if int(at) < len(d.touched) && d.touched[at].by == by && d.touched[at].seq == seq {
		d.touched[at].record = r
		return at
	}
	if len(d.tickets) > 0 {
		if i, ok := d.tickets[string(appendTicketKey(nil, &by.id, seq))]; ok {
			d.touched[i].record = r // deleted by this entry, so it did exist
			return i
		}
	}
	before := d.lastTicket(by)
	by.touched = int32(len(d.touched))
	d.touched = append(d.touched, touched{by: by, seq: seq, record: r, created: created, before: before})
	return by.touched
}

// lastTicket returns the position of the last of the incarnation's tickets, or -1.
func (d *dirty) lastTicket(by *incarnation) int32 {
	if int(by.touched) < len(d.touched) && d.touched[by.touched].by == by {
		return by.touched
	}
	return -1
}

// rememberTickets is for an incarnation that ends: another one of the same ID may be
// registered by the same entry, with tickets of the same numbers.
func (d *dirty) rememberTickets(ended *incarnation) {
	for i := d.lastTicket(ended); i >= 0; i = d.touched[i].before {
		if d.tickets == nil {
			d.tickets = make(map[string]int32)
		}
		d.tickets[string(appendTicketKey(nil, &ended.id, d.touched[i].seq))] = i
	}
}

// drop marks the record under key as deleted.
func (d *dirty) drop(key string) { d.put(key, nil) }

// Put implements slots.Records.
func (d *dirty) Put(f *slots.Former) { d.put(formerSlot{f}.key(), formerSlot{f}) }

// Drop implements slots.Records.
func (d *dirty) Drop(f *slots.Former) { d.drop(formerSlot{f}.key()) }

// maxKept bounds the records of which an empty dirty keeps the memory, within a factor of
// two: clearing the map takes as long as it is large.
const maxKept = 4096

// flush returns the changes and resets d. They share one array, which belongs to
// the caller.
func (d *dirty) flush() []wire.Change {
	changes := make([]wire.Change, len(d.touched))
	w := wire.Writer{Buf: make([]byte, 0, 64*len(d.touched))}
	for i, t := range d.touched {
		start := len(w.Buf)
		if w.Buf = append(w.Buf, t.key...); t.by != nil {
			w.Buf = appendTicketKey(w.Buf, &t.by.id, t.seq)
		}
		changes[i].Key, changes[i].Created = w.Buf[start:len(w.Buf):len(w.Buf)], t.created
		if t.record == nil {
			continue
		}
		start = len(w.Buf)
		appendState(&w, t.record)
		changes[i].Value = w.Buf[start:len(w.Buf):len(w.Buf)]
	}
	if cap(d.touched) > 2*maxKept {
		*d = dirty{}
		return changes
	}
	clear(d.at)
	clear(d.touched)
	d.touched, d.tickets = d.touched[:0], nil
	return changes
}
