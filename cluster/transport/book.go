package transport

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// SetPeer enters a member into the address book, or changes its address. The
// connection is dialled at once and kept up.
func (t *Transport) SetPeer(member uint64, addr string) {
	if member == t.cfg.Identity.Member {
		return // a member keeps no connection to itself
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if p := t.peers[member]; p != nil {
		p.move(addr)
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	p := &peer{
		t: t, member: member, ctx: ctx, cancel: cancel, addr: addr, err: ErrNotConnected, abandon: func() {},
		queue: newQueue[*wire.Frame](t.cfg.Limits.QueueFrames, t.cfg.Limits.QueueBytes),
		wake:  make(chan struct{}, 1),
	}
	t.peers[member] = p
	if t.started {
		p.start()
	}
}

// RemovePeer strikes a member off the address book and closes its connections,
// of both directions.
func (t *Transport) RemovePeer(member uint64) {
	t.mu.Lock()
	p, in := t.peers[member], t.inbound[member]
	delete(t.peers, member)
	t.mu.Unlock()
	if p != nil {
		p.cancel()
	}
	if in != nil {
		_ = in.conn.Close() // its reader reports the loss
	}
}

// Redial forgets the wait before the next dial of the member: there is reason
// to think that it is back.
func (t *Transport) Redial(member uint64) {
	if p := t.peer(member); p != nil {
		p.kick()
	}
}

// PeerError says why no connection to the member exists; nil: one does.
func (t *Transport) PeerError(member uint64) error {
	p := t.peer(member)
	if p == nil {
		return ErrUnknownPeer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Send queues a frame, which must not be changed any more. It never waits;
// false means that the frame will not arrive: the member is not known or not
// connected, its queue is full, or the frame is over the limit. True promises
// nothing: a connection may break with frames queued.
func (t *Transport) Send(to uint64, f *wire.Frame) bool {
	p := t.peer(to)
	if p == nil {
		return false
	}
	size := proto.Size(f)
	if size > t.cfg.Limits.Frame {
		t.log().Error("a frame over the limit was not sent", "peer", fmt.Sprintf("%x", to), "bytes", size, "limit", t.cfg.Limits.Frame)
		return false
	}
	return p.queue.push(f, size+frameHeader)
}

func (t *Transport) peer(member uint64) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[member]
}
