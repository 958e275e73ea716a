package clients

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Clients learn what this member sees of its group when they attach, and again when it changes: the
// members may all have moved, or this one may be partitioned from them, before a client needs
// another one.

// viewNow returns what this member sees of its group now.
func (s *Server) viewNow() *wire.GroupView {
	level, _ := s.core.Machine().Level()
	return &wire.GroupView{Members: s.cfg.Addresses(), Leaderless: !s.core.HearsLeader(), Level: level}
}

// sendViews sends the view to the clients that have another one, with each tick.
func (s *Server) sendViews() {
	recent := s.recent
	s.recent = nil
	if len(s.attached) == 0 {
		return
	}
	view := s.viewNow()
	if s.view == nil || !proto.Equal(view, s.view) {
		s.view = view
		for _, c := range s.attached { // order: the connections are independent of each other
			c.sendView(view)
		}
		return
	}
	for _, c := range recent {
		c.sendView(view)
	}
}

// sendView sends a view to a client that understands it, unless it has an equal one.
func (c *conn) sendView(view *wire.GroupView) {
	if c.views && !proto.Equal(view, c.view) {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_View{View: view}}, noticeBytes*len(view.GetMembers()))
	}
	c.view = view
}
