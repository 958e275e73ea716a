package client

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// joined notes that a request waits in the tenure, unless it was served at once. keeper.mu is
// held.
func (t *tenure) joined(r *keptRequest) {
	if len(r.result) > 0 {
		return
	}
	r.waited = true
	if t.Kept() || t.place != nil {
		t.put(r, t.Waiting()-1)
	}
}

// queued notes that the request of the tenure was queued.
func (t *tenure) queued(place *wire.Reply) {
	t.keeper.mu.Lock()
	defer t.keeper.mu.Unlock()
	t.placed(place)
}

// placed notes the place of the tenure in the group, and with it that of each request that
// waits here, before the first is granted; nil: it was not queued. keeper.mu is held.
func (t *tenure) placed(place *wire.Reply) {
	if t.place == nil && place != nil {
		t.place = place
		t.placeAll()
	}
}

// placeAll notes the place of each request that waits here and had none so far. keeper.mu is
// held.
func (t *tenure) placeAll() {
	ahead := 0
	t.Each(func(r *keptRequest) {
		t.put(r, ahead)
		ahead++
	})
}

// put notes the place of a request, before which so many others wait here: behind the owner
// of a tenure, or the place of the tenure in the group. keeper.mu is held.
func (t *tenure) put(r *keptRequest, ahead int) {
	if r.places == nil || r.hasPlace {
		return
	}
	r.hasPlace = true
	if t.Kept() {
		place := t.holder(wire.Code_QUEUED)
		place.Position = uint32(ahead) + 1
		r.places <- place
		return
	}
	place := proto.CloneOf(t.place)
	place.Position += uint32(ahead)
	r.places <- place
}

// causeFor is the cause of a grant to a request: none unless it has waited. keeper.mu is held.
func (t *tenure) causeFor(r *keptRequest) []byte {
	if !r.waited {
		return nil
	}
	return t.cause
}
