package clients

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// An outcome that lists a cycle counts at least its bytes in a queue.
func TestReplyBytes_Cycle(t *testing.T) {
	long := func(n int) string { return string(make([]byte, n)) }
	owner := &wire.LockOwner{Session: make([]byte, 16), Name: long(512), Member: 1 << 63, Client: true, Handle: 1 << 63, Label: long(128), Since: -1, Shared: true, Ttl: -1, Remaining: -1, Renewed: -1}
	r := &wire.Reply{Code: wire.Code_DEADLOCK, Index: 1 << 63, Cycle: &wire.Cycle{Length: 1 << 31, Waits: []*wire.Wait{
		{Name: long(512), Election: true, Waiter: owner, Holder: owner}, {Name: long(512), Election: true, Waiter: owner, Holder: owner},
	}}}
	if n, size := replyBytes(r), proto.Size(r); n < size {
		t.Errorf("an outcome of %d bytes counts %d", size, n)
	}
}
