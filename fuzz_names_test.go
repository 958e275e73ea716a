package conclave

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// judge is a machine with one session, asked what it says to a command.
type judge struct {
	*machine.Machine
	index, seq uint64
	session    SessionID
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	j := &judge{Machine: machine.New(), session: SessionID{9}}
	j.mustAccept(t, &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: 1, Boot: 1, Ttl: machine.MaxTTL, NextToken: j.session[:]}}})
	j.mustAccept(t, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: j.session[:], Ttl: machine.MaxTTL}}})
	return j
}

func (j *judge) mustAccept(t *testing.T, c *wire.Command) {
	t.Helper()
	if reply, err := j.ask(c); err != nil || reply.GetCode() != wire.Code_OK {
		t.Fatalf("%v: %v, %v", c, reply, err)
	}
}

// ask fails where the command cannot even be encoded.
func (j *judge) ask(c *wire.Command) (*wire.Reply, error) {
	j.index++
	j.seq++
	incarnation := wire.ID{1}
	command, err := proto.Marshal(c)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{
		{Member: 1, Incarnation: incarnation[:], Calls: []*wire.Call{{Seq: j.seq, Command: command}}},
	}})
	if err != nil {
		return nil, err
	}
	return j.Apply(j.index, 1, data).Outcomes[0].Reply, nil
}

// FuzzName: a name passes here when it is 1 to 512 bytes of UTF-8 without NUL,
// and then the machine takes it for a lock, an election, a semaphore and a key,
// and says its name back; what does not pass, it refuses for the same reason.
func FuzzName(f *testing.F) {
	for _, name := range []string{"", "x", "a/b:c", "a\x00b", "\xff", "\u00e9\u0000", strings.Repeat("x", 512), strings.Repeat("\u20ac", 171), "\ufffd", "\xed\xa0\x80"} {
		f.Add(name)
	}
	for _, name := range nameInputs() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := validName(name)
		good := name != "" && len(name) <= 512 && utf8.ValidString(name) && !strings.Contains(name, "\x00")
		if (err == nil) != good || err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q: %v", name, err)
		}
		if !utf8.ValidString(name) {
			return // it does not get onto the wire
		}
		j := newJudge(t)
		for _, c := range []*wire.Command{
			{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: j.session[:], Handle: 1}}},
			{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: j.session[:], Handle: 1, Election: true}}},
			{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: name, Session: j.session[:], Limit: 1, Permits: 1}}},
			{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{{Kind: wire.KeyOp_PUT, Key: name}}}}},
		} {
			reply, askErr := j.ask(c)
			switch {
			case askErr != nil:
				t.Fatal(askErr)
			case good != (reply.GetCode() == wire.Code_OK), !good && !errors.Is(refusal(reply), sentinel(err)):
				t.Fatalf("%q is %v here, and %v to the machine: %v", name, err, reply, c)
			}
		}
	})
}

// sentinel is the error that a refusal is told apart by.
func sentinel(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return ErrTooLarge
	}
	return ErrInvalid
}

// opBytes describe one operation in FuzzTxn: which, length of the key, length of
// the value in 64 bytes, flags, index or fence.
const opBytes = 1 + 2 + 2 + 1 + 1

func fuzzedOp(b []byte, mine SessionID) Op {
	key := strings.Repeat("k", int(binary.BigEndian.Uint16(b[1:])%600))
	value := make([]byte, 64*int(binary.BigEndian.Uint16(b[3:])%(9<<10)))
	flags, index := WithFlags(uint64(b[5])), uint64(b[6])
	session := mine
	if b[5]%2 == 1 {
		session = SessionID{} // of no session
	}
	return []Op{
		{},
		OpPut(key, value, flags),
		OpPutFenced(key, value, Fence(index)),
		OpCompareAndSwap(key, index, value, flags),
		OpDelete(key),
		OpCompareAndDelete(key, index),
		OpDeletePrefix(key),
		OpAcquire(key, value, session, flags),
		OpRelease(key, value, session, flags),
		OpExpect(key, index),
		OpCheckSequencer(Sequencer{Key: key, LockIndex: index, Session: session}),
	}[b[0]%11]
}

// FuzzTxn: what a Txn lets through, the machine never refuses for its form or
// its size, and it fits into an entry; and what it takes is readable.
func FuzzTxn(f *testing.F) {
	op := func(kind wire.KeyOp_Kind, key, value uint16, index byte) []byte {
		b := binary.BigEndian.AppendUint16([]byte{byte(kind)}, key)
		return append(binary.BigEndian.AppendUint16(b, value), 2, index)
	}
	var each, many []byte
	for kind := range wire.KeyOp_Kind(11) {
		each = append(each, op(kind, 3, 1, 1)...)
	}
	for range 129 {
		many = append(many, op(wire.KeyOp_PUT, 5, 90, 0)...)
	}
	f.Add(each)
	f.Add(each[opBytes:])
	f.Add(many)
	f.Add(many[opBytes:])
	f.Add(op(wire.KeyOp_PUT, 512, 8<<10, 0))
	f.Add(op(wire.KeyOp_PUT, 513, 8<<10+1, 0))
	f.Add(append(op(wire.KeyOp_PUT, 1, 6<<10, 0), op(wire.KeyOp_SWAP, 2, 6<<10+1, 0)...))
	f.Add(append(op(wire.KeyOp_ACQUIRE, 1, 1, 0), op(wire.KeyOp_EXPECT_HOLDER, 1, 0, 1)...))
	f.Add([]byte{})
	for _, in := range txnInputs() {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		j := newJudge(t)
		w := &wire.Write{}
		for ; len(in) >= opBytes && len(w.Ops) <= machine.MaxOps; in = in[opBytes:] {
			o := fuzzedOp(in, j.session)
			if o.validate() != nil {
				return
			}
			w.Ops = append(w.Ops, o.wire())
		}
		if len(w.Ops) == 0 || len(w.Ops) > machine.MaxOps || proto.Size(w) > maxWrite {
			return
		}
		reply, err := j.ask(&wire.Command{Op: &wire.Command_Write{Write: w}})
		if err != nil {
			t.Fatal(err)
		}
		switch reply.GetCode() {
		case wire.Code_OK:
			if len(reply.GetKeys()) != len(w.Ops) {
				t.Fatalf("%d operations, and %d keys in the answer", len(w.Ops), len(reply.GetKeys()))
			}
		case wire.Code_INVALID, wire.Code_TOO_LARGE:
			t.Fatalf("%v to %d operations of %d bytes: operation %d", reply, len(w.Ops), proto.Size(w), reply.GetOp())
		default:
			if int(reply.GetOp()) >= len(w.Ops) {
				t.Fatalf("%v: there are %d operations", reply, len(w.Ops))
			}
		}
	})
}
