package transport

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// SetPeer adds a peer or changes its address, which must be the one that the member
// advertises. The transport dials it at once and keeps the connection up.
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
		p.setAddr(addr)
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

// RemovePeer removes a peer and closes its connections in both directions.
func (t *Transport) RemovePeer(member uint64) {
	t.mu.Lock()
	p, in := t.peers[member], t.inbound[member]
	delete(t.peers, member)
	delete(t.hosts, member)
	t.mu.Unlock()
	if p != nil {
		p.cancel()
	}
	if in != nil {
		_ = in.conn.Close() // its reader reports the loss
	}
}

// Redial ends the wait before the next dial of the member, which is likely to
// be reachable again.
func (t *Transport) Redial(member uint64) {
	if p := t.peer(member); p != nil {
		p.redial()
	}
}

// PeerError returns why there is no connection to the member, or nil if there
// is one.
func (t *Transport) PeerError(member uint64) error {
	p := t.peer(member)
	if p == nil {
		return ErrUnknownPeer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Send queues a frame, which must not be modified afterwards. It never blocks.
// Submissions that are not urgent are sent when no other frame is queued.
// It returns false if the frame will not arrive: the member is unknown or not
// connected, its queue is full, or the frame exceeds the limit. True promises
// nothing: a connection may break with frames queued.
func (t *Transport) Send(to uint64, f *wire.Frame) bool {
	p := t.peer(to)
	if p == nil {
		return false
	}
	size := proto.Size(f)
	if size > t.cfg.Limits.Frame {
		t.log().Error("frame not sent: size limit exceeded", "to", wire.MemberID(to), "bytes", size, "limit", t.cfg.Limits.Frame)
		return false
	}
	if s := f.GetSubmission(); s != nil && !s.GetUrgent() {
		return p.queue.pushBulk(f, size+frameHeader)
	}
	return p.queue.push(f, size+frameHeader)
}

func (t *Transport) peer(member uint64) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[member]
}
