package transport

import (
	"context"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/transport/queue"
	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// peers is the table of the members that this one maintains connections to, and of those that it has from them. It may
// be used on any goroutine. mu is acquired within that of the transport, and before that of a peer.
type peers struct {
	cfg        *Config         // with defaults
	ctx        context.Context // ends with Close of the transport
	goroutines *goroutines
	identity   func() Identity // of this member, now
	dial       func(context.Context, Target, wire.Kind) (*conn, error)
	refused    func(ctx context.Context, addr string, dialed error) bool // whether the host there refuses connections

	mu      sync.Mutex // guards what follows
	started bool
	closed  bool
	byID    map[uint64]*peer
	inbound map[uint64]*inbound // the current PEER connection from each member
	hosts   map[uint64]string   // from which each member has connected last
}

// start begins to dial.
func (s *peers) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	for _, p := range s.byID {
		p.start()
	}
}

// close prevents further peers, and reports of losses.
func (s *peers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// redialAll ends the wait before the next dial of each member.
func (s *peers) redialAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byID {
		p.redial()
	}
}

// isMember reports whether PEER and SNAPSHOT connections of the member are accepted.
func (s *peers) isMember(member uint64) bool {
	if s.cfg.Member != nil {
		return s.cfg.Member(member)
	}
	return s.peer(member) != nil
}

// SetPeer adds a peer or changes its address, which must be the one that the member
// advertises. The transport dials it at once and keeps the connection up.
func (s *peers) SetPeer(member uint64, addr string) {
	if member == s.cfg.Identity.Member {
		return // a member keeps no connection to itself
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if p := s.byID[member]; p != nil {
		p.setAddr(addr)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p := &peer{
		table: s, member: member, ctx: ctx, cancel: cancel, addr: addr, err: ErrNotConnected, abandon: func() {},
		queue: queue.NewFair[*wire.Frame](s.cfg.Limits.QueueFrames, s.cfg.Limits.QueueBytes, flowFrames, flowBytes),
		wake:  make(chan struct{}, 1),
	}
	s.byID[member] = p
	if s.started {
		p.start()
	}
}

// RemovePeer removes a peer and closes its connections in both directions.
func (s *peers) RemovePeer(member uint64) {
	s.mu.Lock()
	p, in := s.byID[member], s.inbound[member]
	delete(s.byID, member)
	delete(s.hosts, member)
	s.mu.Unlock()
	if p != nil {
		p.cancel()
	}
	if in != nil {
		_ = in.conn.Close() // its reader reports the loss
	}
	s.cfg.Crashes.Forget(member)
}

// Redial ends the wait before the next dial of the member, which is likely to
// be reachable again.
func (s *peers) Redial(member uint64) {
	if p := s.peer(member); p != nil {
		p.redial()
	}
}

// PeerError returns why there is no connection to the member, or nil if there
// is one.
func (s *peers) PeerError(member uint64) error {
	p := s.peer(member)
	if p == nil {
		return ErrUnknownPeer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// What each group may have queued for a peer also when others have filled the queue.
const (
	flowFrames = 64
	flowBytes  = 64 << 10
)

// Send queues a frame, which must not be modified afterwards. It never blocks.
// The frames of each group are sent in their order, and the groups take turns. Submissions that are not urgent are sent when no other frame of
// their group is queued.
// It returns false if the frame will not arrive: the member is unknown or not
// connected, its queue is full, or the frame exceeds the limit. True promises
// nothing: a connection may break with frames queued.
func (s *peers) Send(to uint64, f *wire.Frame) bool {
	p, size := s.outbound(to, f)
	if p == nil {
		return false
	}
	if submission := f.GetSubmission(); submission != nil && !submission.GetUrgent() {
		return p.queue.PushBulk(f.GetGroup(), f, size)
	}
	return p.queue.Push(f.GetGroup(), f, size)
}

// SendLater is Send for a frame that may wait for others of Timing.Gather, so that one write has them all: each write and each read costs more
// than a heartbeat.
func (s *peers) SendLater(to uint64, f *wire.Frame) bool {
	p, size := s.outbound(to, f)
	return p != nil && p.queue.PushLater(f.GetGroup(), f, size, s.cfg.Timing.Gather)
}

// outbound returns the peer that a frame is for, and the frame's bytes; nil: the frame cannot be sent.
func (s *peers) outbound(to uint64, f *wire.Frame) (p *peer, size int) {
	size = proto.Size(f)
	if size > s.cfg.Limits.Frame {
		s.cfg.Logger.Error("frame not sent: size limit exceeded", "to", wire.MemberID(to), "bytes", size, "limit", s.cfg.Limits.Frame)
		return nil, 0
	}
	return s.peer(to), size + frameHeader
}

func (s *peers) peer(member uint64) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[member]
}

// knownHost reports whether a member has connected from the host, or advertises it.
func (s *peers) knownHost(host string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.hosts {
		if known == host {
			return true
		}
	}
	for _, p := range s.byID {
		if p.host() == host {
			return true
		}
	}
	return false
}

// noteHost notes from which host a member has connected.
func (s *peers) noteHost(member uint64, addr net.Addr) {
	host := slots.HostOf(addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[member] = host
}

// advertisedName returns the host that a peer advertises if that is a name, which
// memberlist has resolved; else "".
func (s *peers) advertisedName(member uint64) string {
	p := s.peer(member)
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	host, _, err := net.SplitHostPort(p.addr)
	if err != nil || net.ParseIP(host) != nil {
		return ""
	}
	return host
}
