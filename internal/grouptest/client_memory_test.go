package grouptest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// hostileClient connects a client that speaks the protocol by itself.
func hostileClient(t *testing.T, n *conclave.Node) *hostile.Conn {
	t.Helper()
	key := hostile.NewKey()
	conn, refusal, err := hostile.Connect(n.Addr(), key, hostile.ClientHello(key, "conclave"))
	if err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func attachPart(a *wire.Attach) *wire.ClientFrame {
	return &wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: a}}
}

// A client that does not end its Attach makes its member hold no more than the largest one takes:
// each item has a largest size, and they are counted before they are kept.
func TestClient_UnfinishedAttach(t *testing.T) {
	g := Start(t, 1, keepConnections)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...) // the group is at the feature level of clients
	session := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	for name, part := range map[string]*wire.Attach{
		"a long session":             {Sessions: [][]byte{session(17)}},
		"a session of 1 MiB":         {Sessions: [][]byte{session(1 << 20)}},
		"a long session that awaits": {Awaiting: []*wire.Awaiting{{Session: session(17)}}},
		"a long name":                {Awaiting: []*wire.Awaiting{{Semaphore: strings.Repeat("x", 513)}}},
		"too many sessions, empty":   {Sessions: make([][]byte, wire.MaxAttached+1)},
		"too many that await, empty": {Awaiting: awaiting(wire.MaxAttached+1, "")},
		"half a million that await":  {Awaiting: awaiting(500_000, "")},
	} {
		t.Run(name, func(t *testing.T) {
			conn := hostileClient(t, g.Nodes[0])
			part.More = true
			Must(t, conn.SendMessage(attachPart(part)))
			wantClosed(t, conn, attachPart(new(wire.Attach)))
		})
	}
	conn, before := hostileClient(t, g.Nodes[0]), heapInUse()
	const parts = 16
	for range parts {
		part := &wire.Attach{More: true, Awaiting: awaiting(wire.MaxAttached/parts, strings.Repeat("x", 512))}
		for range wire.MaxAttached / parts {
			part.Sessions = append(part.Sessions, session(16))
		}
		Must(t, conn.SendMessage(attachPart(part)))
	}
	Pass(time.Second)
	g.wantHeap(before, 32<<20, "the largest Attach")
	Must(t, conn.SendMessage(attachPart(&wire.Attach{More: true, Sessions: [][]byte{session(16)}})))
	wantClosed(t, conn, attachPart(new(wire.Attach)))
}

// wantClosed fails the test if the member answers the frame instead of having closed the
// connection.
func wantClosed(t *testing.T, conn *hostile.Conn, f *wire.ClientFrame) {
	t.Helper()
	_ = conn.SendMessage(f) // it may be closed already
	for {
		body, err := conn.Receive()
		switch {
		case errors.Is(err, hostile.ErrClosed):
			return
		case err != nil:
			t.Fatal(err)
		case len(body) > 0:
			t.Fatalf("the member goes on, and sends %d bytes", len(body))
		}
	}
}

func request(id uint64, kind string, body int) *wire.ClientFrame {
	r := &wire.Request{Id: id, Kind: kind, Body: bytes.Repeat([]byte{'x'}, body)}
	return &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}
}

func awaiting(n int, name string) (all []*wire.Awaiting) {
	for range n {
		all = append(all, &wire.Awaiting{Semaphore: name})
	}
	return all
}

// A request with a long body is refused, and the member keeps nothing of it. The connection goes
// on.
func TestClient_LongRequests(t *testing.T) {
	g := Start(t, 1, keepConnections)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	conn := hostileClient(t, g.Nodes[0])
	Must(t, conn.SendMessage(attachPart(new(wire.Attach))))
	before := heapInUse()
	const requests = 256
	send := func(id uint64, kind string, size int) { Must(t, conn.SendMessage(request(id, kind, size))) }
	for id := range uint64(requests) {
		send(id, []string{"observe", "watch", "lock", "none"}[id%4], wire.MaxRequest+1+int(id)*4000)
	}
	for id := range uint64(requests) {
		if a := nextAnswer(t, conn); a.GetId() != id || a.GetFailure() != wire.Failure_FAILURE_TOO_LARGE || !a.GetLast() {
			t.Fatalf("request %d is answered by %v", id, a)
		}
	}
	g.wantHeap(before, 16<<20, "refused requests")
	send(requests, "lock", 1)
	if a := nextAnswer(t, conn); a.GetId() != requests || a.GetFailure() != wire.Failure_FAILURE_INVALID {
		t.Errorf("a later request is answered by %v", a)
	}
	send(0, strings.Repeat("k", wire.MaxRequestKind+1), 1)
	wantClosed(t, conn, request(1, "lock", 1))
}

// A member answers 256 requests of a client at a time, and refuses one more with the limit that it exceeds.
func TestClient_TooManyRequests(t *testing.T) {
	g := Start(t, 1)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	conn := hostileClient(t, g.Nodes[0])
	Must(t, conn.SendMessage(attachPart(new(wire.Attach))))
	for id := range uint64(257) {
		Must(t, conn.SendMessage(request(id, "observe", 1)))
	}
	for {
		a := nextAnswer(t, conn)
		if a.GetFailure() == wire.Failure_FAILURE_NONE {
			continue // the leader that one of them observes
		}
		const want = "busy: limit exceeded: the member answers 256 requests of this client already"
		if a.GetId() != 256 || a.GetFailure() != wire.Failure_FAILURE_BUSY || a.GetError() != want {
			t.Errorf("answered by %v, want that request 256 is refused with %q", a, want)
		}
		return
	}
}

func nextAnswer(t *testing.T, conn *hostile.Conn) *wire.Answer {
	t.Helper()
	for {
		body, err := conn.Receive()
		Must(t, err)
		f := new(wire.MemberFrame)
		Must(t, proto.Unmarshal(body, f))
		if a := f.GetAnswer(); a != nil {
			return a
		}
	}
}

// A command with a list that is longer than any honest one ends the connection before it is decoded.
func TestClient_LongListInCommand(t *testing.T) {
	ops := make([]*wire.KeyOp, 400_000)
	for i := range ops {
		ops[i] = new(wire.KeyOp)
	}
	command, err := proto.Marshal(&wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}})
	Must(t, err)
	s := &wire.Submission{Calls: []*wire.Call{{Seq: 1, Command: command}}}
	g := Start(t, 1)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	conn := hostileClient(t, g.Nodes[0]) // which sends nothing by itself, so the member would close it meanwhile
	Must(t, conn.SendMessage(attachPart(new(wire.Attach))))
	_, err = conn.Receive() // Attached
	Must(t, err)
	Must(t, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: s}}))
	wantClosed(t, conn, request(1, "lock", 1))
}

// A client that asks for the names of all keys, again and again, and reads no answer, makes its member
// hold none of them.
func TestClient_NamesNotRead(t *testing.T) {
	g := Start(t, 1, keepConnections)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...) // the group is at the feature level of clients
	const n = 16_384
	for i := 0; i < n; i += 128 {
		var ops []conclave.Op
		for k := range 128 {
			ops = append(ops, conclave.OpPut(fmt.Sprint(i+k), nil))
		}
		_, err := g.Nodes[0].KV().Txn(Bounded(t), ops...)
		Must(t, err)
	}
	conn := hostileClient(t, g.Nodes[0])
	Must(t, conn.SendMessage(attachPart(new(wire.Attach))))
	before := heapInUse()
	const requests = 250
	for id := range uint64(requests) {
		r := &wire.Request{Id: id, Kind: "key-names", Stale: true, Body: []byte(`{}`)}
		Must(t, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}))
	}
	Pass(time.Second)
	g.wantHeap(before, 40<<20, "names that wait")
}
