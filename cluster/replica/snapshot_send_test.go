package replica

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wait"
)

// What a stream has sent is not counted for the stream that has replaced it: the log would wait
// for a member for longer than its snapshot has earned.
func TestSnapshot_ProgressOfReplacedStream(t *testing.T) {
	r := &Requests{mailbox: wait.NewMailbox[event]()}
	s := &snapshotSender{post: r.Post, sending: make(map[uint64]*outgoingSnapshot)}
	former := &outgoingSnapshot{to: 3}
	s.sending[3] = former
	s.noteSent(former, 100<<20)
	s.sending[3] = &outgoingSnapshot{to: 3} // before the loop runs the event
	defer func() {
		if p := recover(); p != nil {
			t.Error("the core is notified:", p)
		}
	}()
	for _, e := range r.mailbox.Fetch() {
		e.run(nil)
	}
}
